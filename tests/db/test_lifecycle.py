"""Every pair of status and move: through `lifecycle.move()`, and through the statements of the hot path."""

from __future__ import annotations

import json

import pytest
from django.db import connection

from django_pgjobs import lifecycle, outcomes, statements, upkeep
from django_pgjobs.claims import release, release_orphans
from django_pgjobs.lifecycle import FINAL, MOVES, Status
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Done, Failed, Snoozed
from tests.db.rows import (
    FUTURE,
    STATUSES,
    changed,
    claim_of,
    claimed,
    execute,
    make,
    make_worker,
    row,
)

pytestmark = pytest.mark.django_db

RUN = {"status", "attempts", "claims", "locked_at", "locked_by", "attempted_at"}
UNLOCK = {"status", "locked_at", "locked_by"}
FINISH = {*UNLOCK, "finished_at"}
NOTE = {"last_error", "errors"}
AGAIN = {"status", "run_at", "finished_at", "cancel_requested_at", "max_attempts"}

# What each allowed pair changes in a row of the usual shape. Written out, not derived from MOVES.
CHANGES = {
    ("claim", "pending"): RUN,
    ("release", "running"): {*UNLOCK, "attempts", "attempted_at"},
    ("snooze", "running"): {*UNLOCK, "attempts"},
    ("complete", "running"): FINISH,
    ("retry", "running"): UNLOCK,
    ("fail", "running"): FINISH,
    ("reap", "running"): UNLOCK,
    ("reap_to_failed", "running"): FINISH,
    ("cancel", "pending"): {"status", "finished_at"},
    ("cancel", "running"): FINISH,
    ("reschedule", "pending"): {"run_at"},
    ("retry_by_hand", "failed"): {*AGAIN, "attempts_before"},
    ("retry_by_hand", "cancelled"): {*AGAIN, "attempts_before"},
}
TARGETS = {
    "claim": "running",
    "release": "pending",
    "snooze": "pending",
    "complete": "done",
    "retry": "pending",
    "fail": "failed",
    "reap": "pending",
    "reap_to_failed": "failed",
    "cancel": "cancelled",
    "reschedule": "pending",
    "retry_by_hand": "pending",
}
VALUES = {"claim": {"locked_by": 7}, "reschedule": {"run_at": FUTURE}}

all_statuses = pytest.mark.parametrize("status", STATUSES)


def make_row(status, **columns):
    """A row in which each column that a move may set has another value before."""
    cancelled = {"cancel_requested_at": FUTURE} if status in FINAL else {}
    return make(status, **cancelled, **columns)


@all_statuses
@pytest.mark.parametrize("move", MOVES)
def test_a_move_changes_exactly_its_columns_of_its_source_statuses_and_nothing_else(move, status):
    job = make_row(status)
    before = row(job)

    moved = lifecycle.move(Job.objects.filter(pk=job.pk), move, **VALUES.get(move, {}))

    after = row(job)
    expected = CHANGES.get((move, status), set())
    assert moved == bool(expected)
    assert changed(before, after) == expected
    if expected:
        assert after["status"] == TARGETS[move]


# Which keys a move clears, by how they begin. A key of plain SQL may have no beginning of that kind.
KEYS = {"start:k", "finished:k", "period:k", "k"}
CLEARED = {"running": {"start:k"}, **dict.fromkeys(FINAL, KEYS - {"period:k"})}


@pytest.mark.parametrize(("move", "status"), CHANGES)
def test_a_move_clears_the_keys_that_are_held_so_long_and_sets_none(move, status):
    for key in KEYS:
        job = make_row(status, unique_key=key)

        assert lifecycle.move(Job.objects.filter(pk=job.pk), move, **VALUES.get(move, {})) == 1

        expected = None if key in CLEARED.get(TARGETS[move], ()) else key
        assert row(job)["unique_key"] == expected
        job.delete()


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_cancel_by_hand_clears_the_key_of_a_pending_job_only(key):
    pending, running = make("pending", unique_key=key), make("running", unique_key=f"{key}2")

    assert Job.objects.all().cancel() == 2

    assert row(pending)["unique_key"] == (None if key in CLEARED["cancelled"] else key)
    assert row(running)["unique_key"] == f"{key}2"


def test_every_move_and_every_status_is_walked():
    assert set(TARGETS) == set(MOVES)
    assert set(STATUSES) == set(Status)
    assert {(name, source) for name, move in MOVES.items() for source in move.sources} == set(
        CHANGES
    )


def _failure(job, delay):
    error = {"attempt": 1, "error": "E", "message": "m", "traceback": "", "worker": "w"}
    return Failed(claim_of(job), error, delay)


def _settle(job, outcome):
    before = row(job)
    outcomes.settle(execute, 7, [outcome])
    return row(job) != before


def _statement(sql, job):
    Job.objects.filter(pk=job.pk, status="running").update(cancel_requested_at=FUTURE)
    rows = [{"id": job.id, "claims": 1, "last_error": "E", "error": {}}]
    return bool(execute(sql, {"worker": 7, "rows": json.dumps(rows), "ids": [job.id]}))


def _reap(job):
    make_worker(id=7, died_at=FUTURE)
    return bool(execute(upkeep.REAP, {"lease": 60.0, "limit": 10}))


STATEMENTS = {
    "claim of named queues": lambda job: bool(claimed(queues=["default"])),
    "claim of all queues": lambda job: bool(claimed()),
    "release": lambda job: bool(
        execute(statements.RELEASE, {"worker": 7, "ids": [job.id], "claims": [1]})
    ),
    "release of orphans": lambda job: bool(release_orphans(execute, 7, [])),
    "complete": lambda job: _settle(job, Done(claim_of(job))),
    "complete with a result": lambda job: _settle(job, Done(claim_of(job), "3")),
    "snooze": lambda job: _settle(job, Snoozed(claim_of(job), 5.0)),
    "retry": lambda job: _settle(job, _failure(job, 5.0)),
    "fail": lambda job: _settle(job, _failure(job, None)),
    "cancel": lambda job: _statement(statements.CANCEL, job),
    "reap": _reap,
    "retry by hand": lambda job: bool(job.retry()),
    "cancel by hand": lambda job: bool(job.cancel()),
    "reschedule": lambda job: bool(job.reschedule(FUTURE)),
}
STATEMENT_CHANGES = {
    ("claim of named queues", "pending"): RUN,
    ("claim of all queues", "pending"): RUN,
    ("release", "running"): {*UNLOCK, "attempts", "attempted_at"},
    ("release of orphans", "running"): {*UNLOCK, "attempts", "attempted_at"},
    ("complete", "running"): FINISH,
    ("complete with a result", "running"): {*FINISH, "result"},
    ("snooze", "running"): {*UNLOCK, "attempts", "run_at"},
    ("retry", "running"): {*UNLOCK, *NOTE, "run_at"},
    ("fail", "running"): {*FINISH, *NOTE},
    ("cancel", "running"): {*FINISH, *NOTE, "cancel_requested_at"},
    ("reap", "running"): {*UNLOCK, *NOTE, "run_at"},
    ("retry by hand", "failed"): {*AGAIN, "attempts_before"},
    ("retry by hand", "cancelled"): {*AGAIN, "attempts_before"},
    ("cancel by hand", "pending"): {"status", "finished_at", "cancel_requested_at"},
    ("cancel by hand", "running"): {"cancel_requested_at"},
    ("reschedule", "pending"): {"run_at"},
}


@all_statuses
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_changes_exactly_its_columns_of_its_source_statuses_and_nothing_else(
    name, status
):
    job = make_row(status)
    before = row(job)

    moved = STATEMENTS[name](job)

    expected = STATEMENT_CHANGES.get((name, status), set())
    assert moved == bool(expected)
    assert changed(before, row(job)) == expected


@pytest.mark.parametrize(
    ("columns", "target", "columns_changed"),
    [
        ({"attempts": 4}, "pending", {*UNLOCK, *NOTE, "run_at"}),
        ({"attempts": 5}, "failed", {*FINISH, *NOTE}),
        ({"attempts": 6}, "failed", {*FINISH, *NOTE}),
        ({"attempts": 1, "cancel_requested_at": FUTURE}, "cancelled", {*FINISH, *NOTE}),
        ({"attempts": 5, "cancel_requested_at": FUTURE}, "cancelled", {*FINISH, *NOTE}),
    ],
)
def test_a_reaped_job_goes_where_its_attempts_and_a_cancel_request_send_it(
    columns, target, columns_changed
):
    job = make("running", max_attempts=5, **columns)
    before = row(job)

    assert _reap(job)

    assert row(job)["status"] == target
    assert changed(before, row(job)) == columns_changed


def test_a_release_keeps_the_time_of_an_earlier_attempt():
    job = make("running", attempts=2)

    release(execute, 7, [claim_of(job)])

    assert row(job)["attempted_at"] == job.attempted_at
    assert row(job)["attempts"] == 1
    assert row(job)["claims"] == 1


@pytest.mark.parametrize(
    ("attempts", "before", "maximum", "granted"),
    [(5, 0, 5, 5), (1, 0, 1, 1), (10, 5, 10, 5), (2, 0, 5, 5), (0, 0, 5, 5)],
)
def test_a_retry_by_hand_grants_the_whole_budget_again(attempts, before, maximum, granted):
    job = make("failed", attempts=attempts, attempts_before=before, max_attempts=maximum)

    assert job.retry() == 1

    job.refresh_from_db()
    assert job.attempts == attempts
    assert job.max_attempts - job.attempts == granted
    assert job.attempts_before == attempts


def test_a_move_joins_the_callers_transaction(django_assert_num_queries):
    job = make("failed")

    with django_assert_num_queries(1):
        job.retry()

    assert connection.in_atomic_block
