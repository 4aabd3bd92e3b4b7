"""Claim jobs and give unstarted ones back: who may run what.

Invariant: a claim is one statement, so a job is either pending for all or running for one worker;
`claims` rises with it, and (id, locked_by, claims) is the token of everything written later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from django.db import transaction
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now

from django_pgjobs import statements
from django_pgjobs.models import Job
from django_pgjobs.sessions import Execute


class Claim(NamedTuple):
    """A claimed job as the hot path needs it: a tuple, not a model instance."""

    id: int
    kind: str
    payload: str  # JSON text, decoded where the job runs, so that a bad one fails only that job
    attempts: int
    attempts_before: int
    max_attempts: int
    claims: int

    @property
    def attempt(self) -> int:
        """The number of this attempt since the last retry by hand, from 1: what a policy counts."""
        return max(1, self.attempts - self.attempts_before)


class Claimer:
    """Claims for one worker, from the queues that it serves."""

    def __init__(
        self,
        alias: str,
        worker: int,
        queues: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
    ) -> None:
        """Compile the statement. `queues` None serves every queue that is not in `exclude`."""
        served = statements.ALL_QUEUES if queues is None else statements.NAMED_QUEUES
        self._sql = statements.claim(served, _oldest(alias))
        self._params = {"worker": worker, "queues": list(queues or ()), "exclude": list(exclude)}

    def claim(self, execute: Execute, limit: int) -> list[Claim]:
        """Claim up to `limit` due jobs and return them in order: priority, run_at, id."""
        rows = execute(self._sql, {**self._params, "limit": limit})
        rows.sort(key=lambda row: (-row[7], row[8], row[0]))
        return [Claim(*row[:7]) for row in rows]


def release(execute: Execute, worker: int, unstarted: Sequence[Claim]) -> list[Claim]:
    """Give claims that never started back; they count no attempt. Return those that were locked.

    Somebody else is writing such a row at this moment: try again later. A claim that is not the
    worker's any more needs no release.
    """
    rows = execute(statements.RELEASE, _held(worker, unstarted))
    locked = {job_id for job_id, released in rows if not released}
    return [claim for claim in unstarted if claim.id in locked]


def release_orphans(execute: Execute, worker: int, held: Iterable[Claim]) -> int:
    """Give back what carries this worker's id but is not in `held`; return how many it were.

    To be run by the thread that claims: between a claim and its being known there is no orphan.
    """
    return len(execute(statements.RELEASE_ORPHANS, _held(worker, held)))


def _held(worker: int, claims: Iterable[Claim]) -> dict[str, object]:
    held = list(claims)
    return {
        "worker": worker,
        "ids": [claim.id for claim in held],
        "claims": [claim.claims for claim in held],
    }


def _oldest(alias: str) -> str:
    """Compile the locking SELECT over one lane with the ORM, once for a worker's life.

    The status is a literal and not a bound value: a generic plan could not match it with the
    partial index. Compiling asks for a transaction, since the ORM would refuse to run it outside.
    """
    jobs = (
        Job.objects.using(alias)
        .filter(
            status=RawSQL("'pending'", ()),
            queue=RawSQL("lane.queue", ()),
            priority=RawSQL("lane.priority", ()),
            run_at__lte=Now(),
        )
        .order_by("run_at", "id")
        .select_for_update(skip_locked=True)
        .values("id")
    )
    with transaction.atomic(using=alias):
        sql, params = jobs.query.get_compiler(using=alias).as_sql()
    if params:
        raise AssertionError(f"the claim's SELECT must bind no values, got {params!r}")
    return str(sql)
