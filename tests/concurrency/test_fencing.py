"""Late writes change nothing, and a death is recorded only of what is dead."""

from __future__ import annotations

import logging

import pytest
from django.db import connection

from django_pgjobs import claims, outcomes, reaper
from django_pgjobs.claims import Claimer
from django_pgjobs.leases import Lease, renew
from django_pgjobs.models import Job, Worker
from django_pgjobs.outcomes import Cancelled, Done, Failed, Snoozed
from django_pgjobs.sessions import execute_on_django
from tests.app.jobs import noop
from tests.concurrency.actors import registered
from tests.waiting import eventually

execute = execute_on_django("default")
ERROR = {"attempt": 1, "error": "E", "message": "m", "traceback": "", "worker": "w"}
WRITES = {
    "complete": lambda worker, claim: outcomes.settle(execute, worker, [Done(claim)]),
    "complete with result": lambda worker, claim: outcomes.settle(
        execute, worker, [Done(claim, "1")]
    ),
    "retry": lambda worker, claim: outcomes.settle(execute, worker, [Failed(claim, ERROR, 60.0)]),
    "fail": lambda worker, claim: outcomes.settle(execute, worker, [Failed(claim, ERROR, None)]),
    "stop": lambda worker, claim: outcomes.settle(execute, worker, [Cancelled(claim, ERROR)]),
    "snooze": lambda worker, claim: outcomes.settle(execute, worker, [Snoozed(claim, 60.0)]),
    "release": lambda worker, claim: claims.release(execute, worker, [claim]),
}


def register() -> int:
    return registered(execute).worker


def claim_by(worker: int) -> claims.Claim:
    [claim] = Claimer("default", worker).claim(execute, 1)
    return claim


def row() -> dict[str, object]:
    return Job.objects.values().get()


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("holder", ["another worker", "the same worker"])
def test_a_write_with_an_older_token_changes_nothing(audited, caplog, write, holder):
    """The same worker may claim a job again: its id alone would be no fence."""
    noop.enqueue()
    worker = register()
    old = claim_by(worker)
    claims.release(execute, worker, [old])
    new = claim_by(worker if holder == "the same worker" else register())
    before = row()
    with caplog.at_level(logging.WARNING):
        answer = WRITES[write](worker, old)
    assert row() == before
    assert (new.claims, old.claims) == (2, 1)
    if write != "release":
        assert [outcome.claim for outcome in answer.stale] == [old]
        assert "was lost: its outcome is dropped" in caplog.text


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("end", ["complete", "fail"])
def test_a_late_write_leaves_a_finished_job_alone(audited, write, end):
    noop.enqueue()
    worker = register()
    claim = claim_by(worker)
    WRITES[end](worker, claim)
    before = row()
    WRITES[write](worker, claim)
    assert row() == before


def test_a_stale_outcome_spoils_none_of_its_batch(audited):
    for _ in range(6):
        noop.enqueue()
    worker, other = register(), register()
    batch = Claimer("default", worker).claim(execute, 6)
    claims.release(execute, worker, batch[:3])
    Claimer("default", other).claim(execute, 3)
    left = outcomes.settle(
        execute,
        worker,
        [
            *(Done(batch[0]), Done(batch[1], "1"), Failed(batch[2], ERROR, 1.0)),
            *(Done(batch[3]), Done(batch[4], "1"), Failed(batch[5], ERROR, None)),
        ],
    )
    assert {outcome.claim for outcome in left.stale} == set(batch[:3])
    assert list(Job.objects.order_by("id").values_list("status", flat=True)) == [
        *["running"] * 3,
        *["done", "done", "failed"],
    ]


@pytest.fixture
def aged_worker(audited) -> Lease:
    lease = registered(execute)
    with connection.cursor() as cursor:
        cursor.execute(
            "update django_pgjobs_worker set heartbeat_at = now() - interval '1 hour' where id = %s",
            [lease.worker],
        )
    return lease


def test_a_heartbeat_on_its_way_saves_its_worker(sessions, aged_worker):
    noop.enqueue()
    claim_by(aged_worker.worker)
    living, reaping = sessions
    living.begin()
    living.run(lambda execute: renew(execute, [aged_worker], stopping=False))
    reaping.begin()
    assert reaping.run(lambda execute: reaper.run(execute, older_than=60))[:2] == (0, 0)
    reaping.commit()
    living.commit()
    assert reaper.run(execute, older_than=60)[:2] == (0, 0)
    assert row()["status"] == "running"


def test_a_heartbeat_that_comes_too_late_learns_of_the_death(sessions, aged_worker):
    noop.enqueue()
    claim_by(aged_worker.worker)
    reaping, late = sessions
    reaping.begin()
    assert reaping.run(lambda execute: reaper.run(execute, older_than=60))[:2] == (1, 1)
    late.begin()
    beat = late.start(lambda execute: renew(execute, [aged_worker], stopping=False))
    assert late.waits_for(reaping, beat)
    reaping.commit()
    assert beat.result(timeout=10).lost == [aged_worker], "it is told that the lease is lost"
    late.rollback()
    assert row()["status"] == "pending"


def test_a_heartbeat_revives_nobody(audited):
    lease = registered(execute)
    lease.end(execute, "for this test")
    assert renew(execute, [lease], stopping=False).lost == [lease]
    assert Worker.objects.get().died_at


def test_of_two_reapers_one_takes_the_job(sessions, aged_worker):
    noop.enqueue()
    board = aged_worker.board
    board.start(board.take(), claim_by(aged_worker.worker).id)
    aged_worker.end(execute, "for this test")
    first, second = sessions
    for session in sessions:
        session.begin()
    assert first.run(lambda execute: reaper.run(execute, older_than=60)).jobs == 1
    assert second.run(lambda execute: reaper.run(execute, older_than=60)).jobs == 0
    first.commit()
    second.commit()
    assert len(Job.objects.get().errors) == 1


PLANS = {
    "as the planner likes": "",
    "with nested loops": "set enable_hashjoin = off; set enable_mergejoin = off",
    "with nested loops, nothing hashed or sorted": "set enable_hashjoin = off; "
    "set enable_mergejoin = off; set enable_hashagg = off; set enable_sort = off; "
    "set enable_material = off; set enable_memoize = off",
    "with merge joins": "set enable_hashjoin = off; set enable_nestloop = off",
}


@pytest.mark.parametrize("plan", PLANS)
def test_a_claim_takes_as_many_as_it_asked_for_whatever_the_plan(audited, plan):
    """A locking select that a join runs once more locks another batch."""
    noop.enqueue_many({} for _ in range(100))
    claimer = Claimer("default", register())
    with connection.cursor() as cursor:
        cursor.execute("analyze django_pgjobs_job;" + PLANS[plan])
    try:
        assert [len(claimer.claim(execute, 5)) for _ in range(3)] == [5, 5, 5]
        assert Job.objects.running().count() == 15
    finally:
        connection.close()


def test_claims_that_overlap_share_no_job_and_leave_none_behind(sessions):
    noop.enqueue_many({} for _ in range(10))
    claimers = [Claimer("default", register()) for _ in sessions]
    taken = []
    for session, claimer in zip(sessions, claimers, strict=True):
        session.begin()
        taken.append({c.id for c in session.run(lambda e, c=claimer: c.claim(e, 6))})
    assert [len(ids) for ids in taken] == [6, 4]
    assert not taken[0] & taken[1]
    sessions[0].die()
    sessions[1].commit()
    eventually(lambda: Job.objects.pending().count() == 6)
    found: list[claims.Claim] = []
    while not claimers[0].exhausted:  # a hot claim starts at its mark: what lies behind comes later
        found += claimers[0].claim(execute, 10)
    assert len(found) == 6
