"""A project may choose any isolation level: the worker's own statements run at READ COMMITTED."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from psycopg import IsolationLevel

from django_pgjobs import enqueue, launch, outcomes, reaper
from django_pgjobs.claims import Claimer
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Done
from django_pgjobs.sessions import IN_ORDER, Session
from django_pgjobs.testing import drain
from django_pgjobs.ticker import Ticker
from tests.db.rows import AGO, make, make_worker, row
from tests.db.test_schedules import MINUTE, overdue, ticks
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

WORKERS, JOBS = 4, 400
CHOICES = {
    "Django's option, repeatable read": {"isolation_level": IsolationLevel.REPEATABLE_READ},
    "Django's option, serializable": {"isolation_level": IsolationLevel.SERIALIZABLE},
    "the server's, repeatable read": {
        "options": "-c default_transaction_isolation=repeatable\\ read"
    },
    "the server's, serializable": {"options": "-c default_transaction_isolation=serializable"},
}


@pytest.fixture(params=CHOICES.values(), ids=CHOICES, autouse=True)
def chosen(request, monkeypatch):
    connection.close()
    options = {**connection.settings_dict["OPTIONS"], **request.param}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    yield
    connection.close()


def level():
    with connection.cursor() as cursor:
        cursor.execute("show transaction_isolation")
        return cursor.fetchone()[0]


def test_the_callers_transaction_has_the_level_of_the_project_and_the_session_its_own(session):
    with transaction.atomic():
        assert level() != "read committed"

    assert session.execute("show transaction_isolation", {}) == [("read committed",)]
    assert session.execute("show transaction_isolation", {}) == [("read committed",)]


def test_workers_claim_and_settle_side_by_side_without_a_serialization_failure():
    Job.objects.bulk_create(Job(kind="noop") for _ in range(JOBS))
    start, failures = threading.Barrier(WORKERS), []
    claimers = [Claimer("default", worker) for worker in range(WORKERS)]

    def work(worker):
        session = Session("default")

        def execute_once(sql, params):
            return session._execute(sql, params)  # without the second try

        start.wait(timeout=30)
        try:
            claimer = claimers[worker]
            while (claims := claimer.claim(execute_once, 7)) or not claimer.exhausted:
                ended = [Done(claim) for claim in claims]
                while ended:  # a claim of somebody else locks what it finds taken, for its moment
                    ended = outcomes.settle(execute_once, worker, ended).locked
        except Exception as error:  # noqa: BLE001 -- whatever it is, the test names it
            failures.append(error)
        finally:
            session.close()

    threads = [threading.Thread(target=work, args=[worker]) for worker in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert failures == []
    assert Job.objects.done().filter(claims=1).count() == JOBS


def test_a_job_is_enqueued_in_the_callers_transaction_and_drained():
    with transaction.atomic():
        enqueued = enqueue("add", a=1)

    assert drain() == 1
    assert row(enqueued)["result"] == 1


def test_the_verbs_work():
    Job.objects.bulk_create(Job(kind="noop") for _ in range(3))

    assert Job.objects.cancel() == 3
    assert Job.objects.retry() == 3


def test_reapers_side_by_side_recover_each_job_once():
    make_worker(id=7, died_at=AGO)
    for _ in range(200):
        make("running")
    start = threading.Barrier(WORKERS)

    def reap():
        session = Session("default")
        start.wait(timeout=30)
        try:
            count = 0
            execute = session._execute  # without the second try
            while found := reaper._reap(execute, 60.0, by_function=True):
                count += found
            return count
        finally:
            session.close()

    with ThreadPoolExecutor(WORKERS) as pool:
        reapers = [pool.submit(reap) for _ in range(WORKERS)]
        counts = [each.result(timeout=60) for each in reapers]

    assert sum(counts) == 200
    assert Job.objects.pending().filter(attempts=1, claims=1).count() == 200


def test_tickers_side_by_side_make_one_job_for_each_tick():
    overdue(3 * MINUTE, missed="all")
    tickers = [Ticker("default") for _ in range(WORKERS)]
    try:
        for each in tickers:
            each.wake(scheduled=True)
        eventually(lambda: Job.objects.count() == 4)
    finally:
        for each in tickers:
            each.end()

    assert set(Counter(ticks()).values()) == {1}
    assert not any(each._complained > 0 for each in tickers)


@pytest.mark.parametrize("planning", [(), (IN_ORDER,)], ids=["any", "in order"])
def test_the_workers_own_statements_are_never_compiled_and_go_by_the_order_of_indexes(planning):
    asked = "select current_setting('jit'), current_setting('enable_sort')"
    with connection.cursor() as cursor:
        cursor.execute(asked)
        assert cursor.fetchone() == ("on", "on")
    with closing(Session("default", *planning)) as session:
        told = [("off", "off" if planning else "on")]
        assert session.execute(asked, {}) == told
        assert session.execute(asked, {}, patience=1.0) == told


def test_a_worker_goes_by_the_order_of_indexes(monkeypatch):
    used = []

    class Noted(Session):
        def __init__(self, alias, planning=()):
            used.append(planning)
            super().__init__(alias, planning)

    monkeypatch.setattr(launch, "Session", Noted)
    call_command("runjobs", "--drain")
    assert used == [IN_ORDER]
