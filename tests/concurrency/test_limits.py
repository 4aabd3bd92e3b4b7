"""Several workers at once: no instant sees more of a key at work than its limit."""

from __future__ import annotations

import threading
from collections import Counter, deque

import pytest
from django.db import connection
from psycopg.errors import SerializationFailure

from django_pgjobs import Limit
from django_pgjobs.models import Gate, Job
from django_pgjobs.outcomes import Done, settle
from django_pgjobs.sessions import Session
from tests import audit
from tests.db.limited import claimer, declare, taken
from tests.db.rows import ids

pytestmark = pytest.mark.usefixtures("audited", "kinds")

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


def most_at_a_time() -> dict[str, int]:
    """What the audit saw of each key. A settle shows before its commit, so this never errs."""
    keys = dict(Job.objects.values_list("id", "concurrency_key"))
    now, most = Counter(), Counter()
    for change in sorted(audit.changes(), key=lambda change: change.at):
        if change.old is not None:
            key = keys[change.job]
            now[key] += (change.new == "running") - (change.old == "running")
            most[key] = max(most[key], now[key])
    return dict(most)


@pytest.mark.parametrize("limit", [1, 3])
def test_no_instant_sees_more_of_a_key_at_work_than_its_limit(limit):
    call = declare(concurrency=Limit(limit, key="customer"))
    call.enqueue_many({"customer": n % KEYS} for n in range(JOBS))
    start = threading.Barrier(WORKERS)
    threads = [
        threading.Thread(target=work_off, args=(worker, 4, call, start))
        for worker in range(1, WORKERS + 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert most_at_a_time() == {f"call:{n}": limit for n in range(KEYS)}
    assert not Job.objects.exclude(status="done", claims=1).exists()


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
