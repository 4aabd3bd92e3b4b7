"""Everything that moves a job, the states it may find the job in, and what it then has to do.

`EXPECTED` is written down by hand and not derived from the product: state, actor, next state.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from django.db import connection

from django_pgjobs import claims, outcomes, reaper
from django_pgjobs.board import Board
from django_pgjobs.claims import Claim, Claimer
from django_pgjobs.leases import Lease
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Cancelled, Done, Failed, Snoozed
from django_pgjobs.sessions import Execute

LEASE = 3_600.0  # the workers of these tests die by record, not by age
PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)

# A "delayed" job is pending and not due; an "asked" one is running and was asked to stop; a "taken" one
# is running for another worker than the actors' own; the "old" ones are old enough to be pruned.
EXPECTED: dict[str, dict[str, str]] = {
    "pending": {"claim": "taken", "cancel": "cancelled", "reschedule": "pending"},
    "delayed": {"cancel": "cancelled", "reschedule": "pending"},
    "running": {
        "complete": "done",
        "complete with result": "done",
        "retry": "delayed",
        "fail": "failed",
        "snooze": "delayed",
        "stop": "cancelled",
        "release": "pending",
        "cancel": "asked",
    },
    "asked": {
        "complete": "done",
        "complete with result": "done",
        "retry": "cancelled",
        "fail": "cancelled",
        "snooze": "cancelled",
        "stop": "cancelled",
        "release": "cancelled",
        "cancel": "asked",
    },
    "taken": {"cancel": "taken"},
    "done": {},
    "failed": {"retry by hand": "pending"},
    "cancelled": {"retry by hand": "pending"},
    "old done": {"prune": "gone"},
    "old failed": {"prune": "gone", "retry by hand": "pending"},
    "old cancelled": {"prune": "gone", "retry by hand": "pending"},
    "gone": {},
}
EXPECTED["lost"] = {**EXPECTED["running"], "reap": "delayed", "cancel": "lost asked"}
EXPECTED["lost asked"] = {**EXPECTED["asked"], "reap": "cancelled", "cancel": "lost asked"}
EXPECTED["lost in the last attempt"] = {"reap": "failed", "complete": "done"}

ROW: dict[str, str] = {
    "pending": "",
    "running": "status = 'running', attempts = 1, claims = 1, locked_at = now(), locked_by = %(own)s",
    "taken": "status = 'running', attempts = 2, claims = 2, locked_at = now(), locked_by = %(other)s",
    "lost in the last attempt": "status = 'running', attempts = 5, claims = 1, locked_at = now(), "
    "locked_by = %(own)s",
    "old done": "status = 'done', finished_at = now() - interval '8 days'",
    "old failed": "status = 'failed', finished_at = now() - interval '31 days'",
    "old cancelled": "status = 'cancelled', finished_at = now() - interval '31 days'",
}
ROW["lost"] = ROW["running"]


def registered(execute: Execute) -> Lease:
    """Register a worker, as a supervisor does."""
    return Lease.register(execute, Board.create(1), pid=os.getpid(), queues=None, threads=1)


@dataclass(frozen=True)
class Case:
    """One job in one state, and the two workers of the actors."""

    job: int
    token: Claim
    own: int
    other: int
    claimer: Claimer


def prepare(state: str) -> Case:
    """Make the job of a case, and a claimer that knows of no earlier one."""
    with connection.cursor() as cursor:
        cursor.execute("delete from django_pgjobs_job; delete from django_pgjobs_worker")
        cursor.execute(
            "insert into django_pgjobs_worker (host, pid, threads, died_at) "
            "values ('own', 1, 1, %s), ('other', 2, 1, null) returning id",
            [PAST if state.startswith("lost") else None],
        )
        [(own,), (other,)] = cursor.fetchall()
        cursor.execute("insert into django_pgjobs_job (kind) values ('noop') returning id")
        [(job,)] = cursor.fetchall()
        if ROW[state]:
            cursor.execute(
                f"update django_pgjobs_job set {ROW[state]} where id = %(job)s",  # noqa: S608
                {"own": own, "other": other, "job": job},
            )
    token, claimer = Claim(job, "noop", "{}", 1, 0, 5, 1), Claimer("default", other)
    return Case(job, token, own, other, claimer)


def _claim(case: Case, execute: Execute) -> int:
    return len(case.claimer.claim(execute, 10))


def _settle(case: Case, execute: Execute, outcome: outcomes.Outcome) -> int:
    version = partial(execute, "select ctid::text from django_pgjobs_job", {})
    before = version()
    outcomes.settle(execute, case.own, [outcome])
    return int(version() != before)


def _complete(case: Case, execute: Execute) -> int:
    return _settle(case, execute, Done(case.token))


def _complete_with_result(case: Case, execute: Execute) -> int:
    return _settle(case, execute, Done(case.token, '"result"'))


def _failed(case: Case, delay: float | None) -> Failed:
    error = {"attempt": 1, "error": "E", "message": "m", "traceback": "", "worker": "own"}
    return Failed(case.token, error, delay)


def _retry(case: Case, execute: Execute) -> int:
    return _settle(case, execute, _failed(case, 3_600.0))


def _fail(case: Case, execute: Execute) -> int:
    return _settle(case, execute, _failed(case, None))


def _snooze(case: Case, execute: Execute) -> int:
    return _settle(case, execute, Snoozed(case.token, 3_600.0))


def _stop(case: Case, execute: Execute) -> int:
    return _settle(case, execute, Cancelled(case.token, _failed(case, None).error))


def _release(case: Case, execute: Execute) -> int:
    before = _given_back(case, execute)
    claims.release(execute, case.own, [case.token])
    return _given_back(case, execute) - before


def _given_back(case: Case, execute: Execute) -> int:
    # It returns what it could not release; what it did, with its attempt, only the trigger tells.
    sql = "select count(*) from audit where given_back and backend = pg_backend_pid()"
    [(count,)] = execute(sql, {})
    return int(count)


def _reap(case: Case, execute: Execute) -> int:
    return reaper._reap(execute, LEASE, by_function=True)


def _prune(case: Case, execute: Execute) -> int:
    return reaper._prune(execute, by_function=True)


def _cancel(case: Case, execute: Execute) -> int:
    return Job.objects.filter(pk=case.job).cancel()


def _reschedule(case: Case, execute: Execute) -> int:
    return Job.objects.filter(pk=case.job).reschedule(PAST)


def _retry_by_hand(case: Case, execute: Execute) -> int:
    return Job.objects.filter(pk=case.job).retry()


ACTORS: dict[str, Callable[[Case, Execute], int]] = {
    "claim": _claim,
    "complete": _complete,
    "complete with result": _complete_with_result,
    "retry": _retry,
    "fail": _fail,
    "snooze": _snooze,
    "stop": _stop,
    "release": _release,
    "cancel": _cancel,
    "reap": _reap,
    "prune": _prune,
    "reschedule": _reschedule,
    "retry by hand": _retry_by_hand,
}
