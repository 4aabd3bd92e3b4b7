"""Several workers at once: no instant sees more of a key at work than its limit."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator

import pytest
from django.db import connection
from psycopg.errors import SerializationFailure

from django_pgjobs import Limit, gates, get_job
from django_pgjobs.models import Gate, Job
from django_pgjobs.outcomes import Done, settle
from django_pgjobs.sessions import Session
from tests import audit
from tests.concurrency.hand_session import HandSession
from tests.db.limited import claimer, declare, taken
from tests.db.rows import ids, make
from tests.waiting import eventually

pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("audited", "kinds")]

WORKERS, JOBS, KEYS = 4, 60, 2


def look(_: object) -> list:
    return taken()


def test_what_one_session_is_claiming_another_counts_though_it_cannot_see_it(sessions):
    first, second = sessions
    call = declare(concurrency=Limit(1))
    call.enqueue()
    Gate.objects.create(name="key:call")
    first.begin()
    mine = first.run(look)
    call.using(priority=1).enqueue()  # it would be the other's choice, and nobody holds its row
    second.begin()

    theirs = second.start(look)
    waited = second.waits_for(first, theirs)
    first.commit()

    assert theirs.result(timeout=10) == []
    assert not waited
    second.commit()
    assert ids(Job.objects.running()) == ids(mine)


def hold_rows(sessions, *jobs: Job) -> None:
    """Have the first session hold their rows, as one does that enqueues a unique job anew."""
    sessions[0].begin()
    statement = "select id from django_pgjobs_job where id = any(%(ids)s) for update"
    assert len(sessions[0].run(lambda execute: execute(statement, {"ids": ids(jobs)}))) == len(jobs)


@pytest.mark.parametrize(("queue", "key"), [("default", "call"), ("mail", "call"), ("mail", None)])
def test_rows_that_somebody_holds_hold_up_none_behind_them(sessions, settings, queue, key):
    settings.PGJOBS = {"QUEUES": {"mail": {"concurrency": 2}}}
    declare(concurrency=Limit(2))
    jobs = [make(kind="call", queue=queue, concurrency_key=key) for _ in range(5)]
    hold_rows(sessions, *jobs[:2])

    claims = sessions[1].run(look)

    assert ids(claims) == ids(jobs[2:4])
    sessions[0].rollback()
    assert taken() == []  # the limit holds for those too


def test_the_first_in_order_holds_up_those_behind_it_while_somebody_holds_its_row(sessions):
    call = declare(ordered=True)
    jobs = [call.enqueue() for _ in range(2)]
    hold_rows(sessions, jobs[0])

    assert sessions[1].run(look) == []

    sessions[0].rollback()
    assert ids(taken()) == [jobs[0].id]


def test_a_claim_holds_no_row_but_those_that_it_takes(sessions):
    first, second = sessions
    call = declare(concurrency=Limit(2, key="customer"))
    jobs = [call.enqueue(customer=n % 3) for n in range(12)]
    first.begin()
    mine = first.run(lambda _: taken(4))
    second.begin()

    statement = "select id from django_pgjobs_job order by id for update skip locked"
    free = second.run(lambda execute: execute(statement, {}))

    assert len(mine) == 4
    assert {n for (n,) in free} == {job.id for job in jobs} - set(ids(mine))
    second.rollback()
    first.commit()


def enter(*names: str):
    return lambda execute: execute(gates.ENTER, {"gates": list(names)})


def is_blocked(session: HandSession) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("select cardinality(pg_blocking_pids(%s)) > 0", [session.pid])
        return cursor.fetchone()[0]


def test_claims_that_enter_the_same_gates_in_opposite_orders_do_not_deadlock(sessions):
    """Else each would have entered the first of its own before it comes to that of the other."""
    first, second = sessions
    with HandSession() as third:
        for session in (first, second, third):
            session.begin()
        third.run(enter("m", "n"))
        one = first.start(enter("a", "m", "z"))
        eventually(lambda: is_blocked(first))
        other = second.start(enter("z", "n", "a"))
        eventually(lambda: is_blocked(second))
        third.commit()
        one.result(timeout=10)
        first.commit()
        other.result(timeout=10)
        second.commit()

    assert Gate.objects.count() == 4


def work_off(worker: int, most: int, call, start: threading.Barrier) -> None:
    """Claim, hold some, complete the oldest and enqueue others, until nothing is left."""
    looks, session, held = claimer(worker), Session("default"), deque()
    left = iter(range(JOBS // WORKERS))
    start.wait(timeout=30)
    while held or Job.objects.pending().exists():
        claimed = looks.claim(session, most)
        held.extend(claimed)
        while len(held) > (most if claimed else 0):
            done = held.popleft()
            assert not settle(session.execute, worker, [Done(done)]).stale
            looks.let_go(done.id)
            if made := next(left, 0):
                priority = made % 7
                call.using(priority=priority).enqueue(customer=made % KEYS)
    session.close()
    connection.close()


def work_off_all(call) -> None:
    start = threading.Barrier(WORKERS)
    threads = [
        threading.Thread(target=work_off, args=(worker, 4, call, start))
        for worker in range(1, WORKERS + 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not Job.objects.exclude(status="done", claims=1).exists()


def instants(*columns: str) -> Iterator[Counter]:
    """How many were at work by what these columns say, after each change that the audit saw.

    A settle shows before its commit, so this never errs.
    """
    values = {row[0]: row[1:] for row in Job.objects.values_list("id", *columns)}
    now = Counter()
    for change in sorted(audit.changes(), key=lambda change: change.at):
        if change.old is not None:
            now[values[change.job]] += (change.new == "running") - (change.old == "running")
            yield now


def most_at_a_time(column: str) -> dict[str, int]:
    most = Counter()
    for now in instants(column):
        most |= now
    return {value: count for (value,), count in most.items()}


@pytest.mark.parametrize("limit", [1, 3])
def test_no_instant_sees_more_of_a_key_at_work_than_its_limit(limit):
    call = declare(concurrency=Limit(limit, key="customer"))
    call.enqueue_many({"customer": n % KEYS} for n in range(JOBS))

    work_off_all(call)

    assert most_at_a_time("concurrency_key") == {f"call:{n}": limit for n in range(KEYS)}


def test_no_instant_sees_more_of_a_queue_at_work_than_its_limit_nor_of_its_keys(settings):
    settings.PGJOBS = {"QUEUES": {"mail": {"concurrency": 3}}}
    call = declare(concurrency=Limit(2, key="customer")).using(queue="mail")
    call.enqueue_many({"customer": n % KEYS} for n in range(JOBS))
    get_job("noop").using(queue="mail").enqueue_many({} for _ in range(JOBS))

    work_off_all(call)

    assert most_at_a_time("queue") == {"mail": 3}
    keys = most_at_a_time("concurrency_key")
    assert {keys[f"call:{n}"] for n in range(KEYS)} == {2}


@pytest.mark.parametrize("queues", ["a", "abc"], ids=["one queue", "several queues"])
def test_no_instant_sees_a_kind_among_more_of_its_key_than_its_limit(queues):
    most = {"one": 1, "three": 3}
    kinds = {
        kind: declare(kind, concurrency=Limit(n)).using(concurrency_key="shared")
        for kind, n in most.items()
    }
    for n in range(JOBS):
        kind = kinds["one" if n % 4 == 0 else "three"]
        kind.using(priority=n % 3, queue=queues[n % len(queues)]).enqueue(customer=n)

    work_off_all(kinds["three"])

    seen = set()
    for now in instants("kind"):
        at_work = {kind: count for (kind,), count in now.items() if count}
        seen.add(sum(at_work.values()))
        assert sum(at_work.values()) <= min([most[kind] for kind in at_work], default=0)
    assert max(seen) == 3


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_limit_holds_whatever_isolation_level_the_project_has_chosen(monkeypatch, level):
    """At these a count would see what was at work before the gate was waited for."""
    options = f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"options": options})
    connection.close()  # the test's own sessions begin anew with it, as those of the workers do
    failures: list[Exception] = []
    execute = Session._execute

    def execute_once(session: Session, *arguments: object) -> object:
        try:
            return execute(session, *arguments)
        except SerializationFailure as error:  # which would be tried again
            failures.append(error)
            raise

    monkeypatch.setattr(Session, "_execute", execute_once)
    test_no_instant_sees_more_of_a_key_at_work_than_its_limit(1)
    assert failures == []
    connection.close()
