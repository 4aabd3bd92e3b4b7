"""Claim jobs and give unstarted ones back: who may run what.

Invariant: a claim is one statement, so a job is either pending for all or running for one worker;
`claims` rises with it, and (id, locked_by, claims) is the token of everything written later.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import BooleanField
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now

from django_pgjobs import conf, free_lanes, limited_lanes, statements
from django_pgjobs.models import Job
from django_pgjobs.sessions import Execute, Rows

SURVEY = 1.0  # seconds between full claims while there is more due than is claimed
MOST_LANES = 500  # marks kept; more are found anew

Lane = tuple[str, int]  # queue and priority
Token = tuple[int, int]  # the job's id and the number of the claim


class Served(NamedTuple):
    """Which queues are claimed from: these, or where it is None every one that is not excluded."""

    queues: Sequence[str] | None = None
    exclude: Sequence[str] = ()

    def includes(self, queue: str) -> bool:
        """Say whether this queue is one of them."""
        return queue not in self.exclude if self.queues is None else queue in self.queues

    def without(self, queues: Collection[str]) -> Served:
        """Return the others."""
        if self.queues is None:
            return Served(None, [*self.exclude, *queues])
        return Served([queue for queue in self.queues if queue not in queues])


class Claim(NamedTuple):
    """A claimed job as the hot path needs it: a tuple, not a model instance."""

    id: int
    kind: str
    payload: str  # JSON text, decoded where the job runs, so that a bad one fails only that job
    attempts: int
    attempts_before: int
    max_attempts: int
    claims: int
    queue: str = ""  # where it was not read again, for figures only
    waited: float = 0.0  # seconds since it was due, for figures only

    @property
    def attempt(self) -> int:
        """The number of this attempt since the last retry by hand, from 1: what a policy counts."""
        return max(1, self.attempts - self.attempts_before)

    @property
    def token(self) -> Token:
        """What every write about the job names, beside the worker."""
        return self.id, self.claims


class Claimer:
    """Claims what has no limits, for one worker, from the queues that it serves.

    A full claim finds the lanes with due work and sees everything; it also sets a mark in each lane,
    from which the hot claims after it start. Marks only postpone: a job that appears behind one, by a
    late commit or a retry, waits for the next full claim. That one tells too when what has limits is due.
    """

    def __init__(
        self,
        alias: str,
        worker: int,
        queues: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
    ) -> None:
        """Compile the statements. `queues` None serves every queue that is not in `exclude`."""
        names = statements.ALL_QUEUES if queues is None else statements.NAMED_QUEUES
        served, oldest = Served(queues, exclude), _oldest(alias)
        limited = [name for name in conf.get().limited_queues if served.includes(name)]
        free = served.without(limited)
        survey = limited_lanes.survey(all_queues=queues is None)
        self._full = free_lanes.full_claim(names, oldest, survey)
        self._hot = free_lanes.hot_claim(oldest)
        self._of_kinds = free_lanes.claim_of_kinds(names, survey)
        self._next_of_kinds: dict[bool, float] = {}
        self._params = {
            "worker": worker,
            "queues": list(free.queues or ()),
            "exclude": list(free.exclude),
            "limited_queues": limited,
        }
        self._marks: dict[Lane, tuple[str, int]] = {}
        self._next_full = 0.0  # by the monotonic clock
        self._soonest_full = 0.0  # what the cost of the last one allows
        self.exhausted = (
            False  # whether the last claim found all that was due, and it was less than asked for
        )
        # Seconds until a job with limits is due, as the last claim saw; None where it did not look.
        self.limited_due: float | None = None

    @property
    def seconds_to_full(self) -> float:
        """How long until a full claim is due: until then, nothing found may mean not looked at."""
        return max(0.0, self._next_full - time.monotonic())

    def hurry(self) -> None:
        """Make a full claim as soon as its cost allows: the hot one has found too little."""
        self._next_full = min(self._next_full, self._soonest_full)

    def forget(self) -> None:
        """Forget the marks: the next claim is a full one, whatever it costs."""
        self._marks.clear()

    def claim(self, execute: Execute, limit: int) -> list[Claim]:
        """Claim up to `limit` due jobs and return them in order: priority, run_at, id."""
        return self.settle_and_claim(execute, (), limit)[0]

    def settle_and_claim(
        self, execute: Execute, done: Sequence[Claim], limit: int
    ) -> tuple[list[Claim], list[Claim]]:
        """Complete `done`, which have one number of claims, and claim, in one round trip.

        Returns the new claims in order, and those of `done` that were not completed.
        """
        began = time.monotonic()
        full = began >= self._next_full or not self._marks
        params = {
            **self._params,
            "limit": limit,
            # As text: psycopg would look at each number of a list, while the server has nothing to do.
            "ids": f"{{{','.join([str(claim.id) for claim in done])}}}",
            "claims": done[0].claims if done else 0,
        }
        if not full:
            params |= self._lanes()
        rows = execute(self._full if full else self._hot, params)
        settled = set(rows[0][0] or ())
        self.limited_due = _seconds(rows[0][1]) if full else None
        claimed = self._note(rows[1:], full=full)
        if full:
            # The more a full claim costs, as under an old snapshot, the rarer it is; and while there
            # is more than can be claimed, what appears behind the marks has no claim to be first.
            cost = time.monotonic() - began
            self._soonest_full = began + 10 * cost
            survey = began + (SURVEY if len(claimed) == limit else 0.0)
            self._next_full = max(survey, self._soonest_full)
        self.exhausted = full and len(claimed) < limit
        return claimed, [claim for claim in done if claim.id not in settled]

    def claim_kinds(
        self, execute: Execute, limit: int, kinds: Sequence[str], *, among: bool
    ) -> list[Claim]:
        """Claim up to `limit` due jobs whose kind is `among` these, or is not; return them in order.

        It looks at the first jobs of each lane only. The more a claim costs that finds nothing, the
        longer none is made.
        """
        began = time.monotonic()
        self.limited_due = None
        if began < self._next_of_kinds.get(among, 0.0):
            return []
        params = {**self._params, "limit": limit, "kinds": list(kinds), "among": among}
        [survey, *rows] = execute(self._of_kinds, params)
        self.limited_due = _seconds(survey[0])
        claimed = [Claim._make(row) for row in rows]
        if not claimed:
            self._next_of_kinds[among] = began + 10 * (time.monotonic() - began)
        return claimed

    def _note(self, rows: Rows, *, full: bool) -> list[Claim]:
        """Read the answer: claims in order, and after a full claim the head of each lane."""
        if full and len(self._marks) > MOST_LANES:
            self._marks.clear()
        heads = [row for row in rows if row[2] is None] if full else []
        claimed = [row for row in rows if row[2] is not None] if heads else rows
        for some in heads, claimed:  # in order, so that the last one of a lane stays
            self._marks.update({(row[8], row[10]): (row[11], row[1]) for row in some})
        return [Claim._make(row[1:10]) for row in claimed]

    def _lanes(self) -> dict[str, list[Any]]:
        marks = self._marks.items()
        return {
            "lane_queues": [queue for (queue, _), _ in marks],
            "lane_priorities": [priority for (_, priority), _ in marks],
            "lane_times": [run_at for _, (run_at, _) in marks],
            "lane_ids": [job for _, (_, job) in marks],
        }


def _seconds(microseconds: int | None) -> float:
    return math.inf if microseconds is None else microseconds / 1_000_000


def release(execute: Execute, worker: int, unstarted: Sequence[Claim]) -> list[Claim]:
    """Give claims that never started back; they count no attempt. Return those that were locked.

    Somebody else is writing such a row at this moment: try again later. A claim that is not the
    worker's any more needs no release.
    """
    rows = execute(statements.RELEASE, _held(worker, unstarted))
    locked = {job_id for job_id, released in rows if not released}
    return [claim for claim in unstarted if claim.id in locked]


def retake(execute: Execute, worker: int, lost: Sequence[Token]) -> tuple[list[Token], list[Token]]:
    """Claim again what this worker had claimed in transactions that were rolled back.

    Each gets the token that it had. Returns what was retaken, and whose row is locked: the server may
    not know yet that the transaction is over. What is in neither has gone on without it.
    """
    numbers = dict(lost)
    params = {"worker": worker, "ids": list(numbers), "claims": list(numbers.values())}
    answer = {(job, numbers[job]): taken for job, taken in execute(statements.RETAKE, params)}
    retaken = [token for token, taken in answer.items() if taken]
    return retaken, [token for token, taken in answer.items() if not taken]


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


_FROM_MARK = f"({statements.JOB}.run_at, {statements.JOB}.id) >= (lane.run_at, lane.id)"


def _oldest(alias: str) -> str:
    """Compile the locking SELECT over one lane with the ORM, once for a worker's life.

    The status is a literal and not a bound value: a generic plan could not match it with the
    partial index. Compiling asks for a transaction, since the ORM would refuse to run it outside.
    """
    jobs = (
        Job.objects.using(alias)
        .filter(
            status=RawSQL("'pending'", ()),
            concurrency_key__isnull=True,
            queue=RawSQL("lane.queue", ()),
            priority=RawSQL("lane.priority", ()),
            run_at__lte=Now(),
        )
        .filter(RawSQL(_FROM_MARK, (), output_field=BooleanField()))
        .order_by("run_at", "id")
        .select_for_update(skip_locked=True)
        .values("id")
    )
    with transaction.atomic(using=alias):
        sql, params = jobs.query.get_compiler(using=alias).as_sql()
    if params:
        raise AssertionError(f"the claim's SELECT must bind no values, got {params!r}")
    return str(sql)
