"""A wake-up is sent after the commit, once for much, and never at the cost of the caller."""

from __future__ import annotations

import logging
from contextlib import suppress

import psycopg
import pytest
from django.db import connection, transaction
from psycopg.pq import TransactionStatus

from django_pgjobs import get_job, notify
from django_pgjobs.models import Job
from tests.app.jobs import noop
from tests.db.rows import AGO, FUTURE, make

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def no_memory(monkeypatch):
    """No test is quiet because of one before it."""
    monkeypatch.setattr(notify, "_sent", {})


class Ears:
    """What a listening session hears."""

    def __init__(self, session: psycopg.Connection) -> None:
        self._session = session
        session.execute("listen django_pgjobs")

    def heard(self) -> list[str]:
        """The payloads so far: whatever was sent before this connection's own comes before it."""
        self._session.execute("select pg_notify('django_pgjobs', 'so far')")
        payloads = []
        for notice in self._session.notifies(timeout=20):
            if notice.payload == "so far":
                return payloads
            payloads.append(notice.payload)
        raise AssertionError("the session must hear itself")


@pytest.fixture
def ears(database_url):
    with psycopg.connect(database_url, autocommit=True) as session:
        yield Ears(session)


class Refused(Exception):
    """An error of the caller's own."""


def test_a_committed_job_wakes_once_and_only_after_the_commit(ears):
    with transaction.atomic():
        noop.using(queue="mail").enqueue()
        assert ears.heard() == []
    assert ears.heard() == ["mail"]


def test_in_autocommit_it_wakes_at_once(ears):
    noop.enqueue()
    assert ears.heard() == ["default"]


def test_many_at_once_wake_once_after_the_outermost_commit(ears):
    with transaction.atomic():
        noop.enqueue_many({"i": i} for i in range(10))
        assert ears.heard() == []
    assert ears.heard() == ["default"]
    notify._sent.clear()
    noop.enqueue_many({"i": i} for i in range(10))
    assert ears.heard() == ["default"]
    notify._sent.clear()
    assert noop.enqueue_many([]) == []
    assert ears.heard() == []


def test_nothing_is_said_of_what_was_rolled_back(ears):
    with suppress(Refused), transaction.atomic():
        noop.enqueue()
        noop.enqueue_many([{}])
        raise Refused
    assert ears.heard() == []


def test_nothing_is_said_of_a_savepoint_that_was_rolled_back(ears):
    with transaction.atomic():
        noop.using(queue="kept").enqueue()
        with suppress(Refused), transaction.atomic():
            noop.using(queue="gone").enqueue()
            raise Refused
    assert ears.heard() == ["kept"]


def test_a_job_beside_a_savepoint_that_was_rolled_back_wakes_all_the_same(ears):
    with transaction.atomic():
        with suppress(Refused), transaction.atomic():
            noop.enqueue()
            raise Refused
        noop.enqueue()
    assert ears.heard() == ["default"]


def test_a_job_in_a_savepoint_wakes_though_an_outer_one_is_rolled_back_beside_it(ears):
    with transaction.atomic():
        with transaction.atomic():
            noop.enqueue()
        with suppress(Refused), transaction.atomic():
            noop.enqueue()
            raise Refused
    assert ears.heard() == ["default"]


def test_a_thousand_jobs_of_a_transaction_keep_one_callback_and_wake_once(ears):
    with transaction.atomic():
        noop.enqueue()
        for _ in range(500):
            noop.enqueue()
            with transaction.atomic():
                noop.enqueue()
        assert len(connection.run_on_commit) == 1
    assert ears.heard() == ["default"]


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets; sending takes `cost` seconds of it."""

    class Clock:
        now, cost = 1_000.0, 0.0

        def __call__(self):
            self.now += self.cost
            return self.now

    clock = Clock()
    monkeypatch.setattr(notify.time, "monotonic", clock)
    return clock


def test_many_transactions_wake_once_until_the_pause_is_over(ears, clock):
    for _ in range(100):
        noop.enqueue()
    assert ears.heard() == ["default"]
    noop.using(queue="mail").enqueue()
    assert ears.heard() == ["mail"], "each queue has its own pause"
    clock.now += 1.01 * notify.SHORTEST_PAUSE
    for _ in range(100):
        noop.enqueue()
    assert ears.heard() == ["default"]


def test_while_sending_takes_more_than_its_share_the_pause_is_longer(ears, clock):
    def enqueue(cost):
        clock.cost = cost
        noop.enqueue()
        clock.cost = 0

    for _ in range(5):
        enqueue(0.011)  # a slow one now and then is no reason
        clock.now += 0.1
    assert ears.heard() == ["default"] * 5
    clock.now += 60
    enqueue(0.06)  # 10 ms more than can be saved up: that is 200 ms of time
    clock.now += 0.13
    enqueue(0)
    assert ears.heard() == ["default"]
    clock.now += 0.02
    enqueue(0)
    assert ears.heard() == ["default"]


def test_no_pause_is_longer_than_workers_look(ears, clock):
    clock.cost = 0.2
    noop.enqueue()
    clock.cost = 0
    clock.now += notify.LONGEST_PAUSE - 0.21
    noop.enqueue()
    assert ears.heard() == ["default"]
    clock.now += 0.02
    noop.enqueue()
    assert ears.heard() == ["default"]


@pytest.mark.parametrize("later", [{"run_at": FUTURE}, {"delay": 3600}], ids=["run_at", "delay"])
def test_nothing_is_said_of_a_job_that_cannot_start_yet(ears, later):
    noop.using(**later).enqueue()
    noop.using(**later).enqueue_many([{}, {}])
    assert ears.heard() == []


@pytest.mark.parametrize("past", [{"run_at": AGO}, {"delay": -5}], ids=["run_at", "delay"])
def test_a_time_in_the_past_is_now(ears, past):
    noop.using(**past).enqueue()
    assert ears.heard() == ["default"]
    notify._sent.clear()
    noop.using(**past).enqueue_many([{}, {}])
    assert ears.heard() == ["default"]


def test_with_autocommit_off_and_no_atomic_nothing_is_sent(ears):
    transaction.set_autocommit(False)
    try:
        noop.enqueue()
        noop.enqueue_many([{}])
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert Job.objects.count() == 2
    assert ears.heard() == []


def test_the_setting_turns_it_off(ears, settings):
    settings.PGJOBS = {"NOTIFY": False}
    noop.enqueue()
    with transaction.atomic():
        noop.enqueue()
    assert ears.heard() == []


def test_a_retry_and_a_reschedule_by_hand_wake_every_queue(ears):
    make("failed").retry()
    assert ears.heard() == [notify.EVERY_QUEUE]
    notify._sent.clear()
    with transaction.atomic():
        make().reschedule(AGO)
        assert ears.heard() == []
    assert ears.heard() == [notify.EVERY_QUEUE]
    notify._sent.clear()
    assert make("done").retry() == 0
    assert ears.heard() == []


def test_no_lock_is_taken_that_other_commits_wait_for():
    """NOTIFY locks "database 0" as its transaction commits: so that is never the caller's."""
    sent = []

    def watch(execute, sql, params, many, context):
        if "pg_notify" in sql:
            sent.append(connection.connection.info.transaction_status)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(watch):
        with transaction.atomic():
            noop.enqueue()
            noop.enqueue_many([{}])
            assert sent == []
            with connection.cursor() as cursor:
                cursor.execute(
                    "select from pg_locks where locktype = 'object' and database = 0 "
                    "and pid = pg_backend_pid()"
                )
                assert cursor.fetchall() == []
        notify._sent.clear()
        noop.enqueue()
    assert sent == [TransactionStatus.IDLE, TransactionStatus.IDLE]


def test_a_wake_up_leaves_the_session_as_it_was(ears):
    with connection.cursor() as cursor:
        cursor.execute("set lock_timeout = '7s'")
        noop.enqueue()
        cursor.execute("show lock_timeout")
        assert cursor.fetchone() == ("7s",)
        cursor.execute("reset lock_timeout")
    assert ears.heard() == ["default"]


@pytest.mark.parametrize("queue", ["q" * 63, "\N{PILE OF POO}" * 15])
def test_the_longest_name_of_a_queue_fits(ears, queue):
    noop.using(queue=queue).enqueue()
    assert ears.heard() == [queue]


def test_a_transaction_of_five_hundred_queues_and_large_payloads_is_committed_and_wakes_them_all(
    ears,
):
    """More than a notification can hold of either."""
    queues = [f"{n}-" + "\N{PILE OF POO}" * 14 for n in range(500)]
    with transaction.atomic():
        for queue in queues:
            get_job("boom").using(queue=queue).enqueue(message="\N{PILE OF POO}" * 2_500)
    assert Job.objects.count() == 500
    assert ears.heard() == queues


@pytest.fixture
def failing(monkeypatch):
    """Wake-ups that the server refuses."""
    monkeypatch.setattr(notify.statements, "NOTIFY", "select 1/0, %(channel)s, %(payload)s")


@pytest.fixture
def cut(monkeypatch):
    """Wake-ups in which the connection breaks."""
    sql = "select pg_terminate_backend(pg_backend_pid()), %(channel)s, %(payload)s"
    monkeypatch.setattr(notify.statements, "NOTIFY", sql)


@pytest.mark.parametrize("fault", ["failing", "cut"])
@pytest.mark.parametrize("atomic", [True, False])
def test_a_wake_up_that_fails_costs_the_caller_nothing(fault, atomic, request, caplog):
    request.getfixturevalue(fault)
    called = []
    with caplog.at_level(logging.WARNING, "django_pgjobs.notify"):
        if atomic:
            with transaction.atomic():
                job = noop.enqueue()
                transaction.on_commit(lambda: called.append(Job.objects.count()))
            assert called == [1]
        else:
            job = noop.enqueue()
        noop.enqueue()  # and another one at once: it does not fail again
    assert Job.objects.filter(pk=job.pk).exists()
    assert Job.objects.count() == 2
    [record] = caplog.records
    assert "default" in record.getMessage()


def test_no_wake_up_is_sent_inside_a_test_s_transaction(ears, django_capture_on_commit_callbacks):
    with transaction.atomic():
        with django_capture_on_commit_callbacks(execute=True) as callbacks:
            noop.enqueue()
        assert len(callbacks) == 1
        transaction.set_rollback(True)  # as a TestCase ends
    assert notify._sent == {}
    assert ears.heard() == []
