"""Run jobs inside a test: in its own transaction, its own thread, at a moment of its choosing.

Invariant: `drain()` uses the claim, the handlers' registry and the settle of a real worker; only the
threads and the connection differ, so what passes here is what a worker does.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

from django.db import router, transaction
from django.db.models import F

from django_pgjobs import lifecycle
from django_pgjobs.board import Board
from django_pgjobs.claims import Claim, Claimer, Served
from django_pgjobs.leases import Lease
from django_pgjobs.limited_claims import LimitedClaimer
from django_pgjobs.models import Job, JobQuerySet
from django_pgjobs.options import LATEST, check_queue
from django_pgjobs.outcomes import Cancelled, Failed, Outcome, Settled, Snoozed
from django_pgjobs.sessions import DjangoExecutor
from django_pgjobs.testing import runs
from django_pgjobs.testing.counts import check_count
from django_pgjobs.testing.kinds import Kind, listed, names_of_all, refuse_misspelt
from django_pgjobs.testing.times import FOR_EVER, interval, travel_to_next


class _Here(threading.local):
    """What goes on in one thread."""

    draining = False

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Say meanwhile that jobs are being drained here."""
        before, self.draining = self.draining, True
        try:
            yield
        finally:
            self.draining = before


here = _Here()


class Drained(int):
    """How many attempts a drain has run, and how many of them ended in each way."""

    done: int
    failed: int  # whether a further attempt follows or not
    snoozed: int
    cancelled: int

    @classmethod
    def of(cls, ends: Mapping[str, int]) -> Self:
        """Make it of these counts."""
        drained = cls(sum(ends.values()))
        drained.done, drained.failed = ends.get("done", 0), ends.get("failed", 0)
        drained.snoozed, drained.cancelled = ends.get("snoozed", 0), ends.get("cancelled", 0)
        return drained

    def __repr__(self) -> str:
        ends = ", ".join(f"{name}={vars(self)[name]}" for name in type(self).__annotations__)
        return f"{int(self)} ({ends})"


def drain(  # noqa: PLR0913 -- every choice has its default
    *,
    kinds: Kind | Iterable[Kind] | None = None,
    queues: Iterable[str] | None = None,
    limit: int | None = None,
    raise_on_failure: bool = False,
    with_delayed: bool = False,
    database: str | None = None,
) -> Drained:
    """Run due jobs one after the other until none is due; return how many attempts were run.

    Jobs that they enqueue are run too. A failed attempt leaves its job pending, with a time in the
    future, or failed, as in production. Rates hold nothing back here: how many run does not depend on
    how fast the test is. Async code calls `sync_to_async(drain)()`.

    Args:
        kinds: run these only: names, `JobType`s or tasks.
        queues: run jobs of these queues only.
        limit: run no more attempts than this.
        raise_on_failure: stop at the first failed attempt, settle it, and raise what its handler raised.
        with_delayed: when nothing is due, let time pass until the next one is, as `travel()` does.
            What always comes back, such as a job that snoozes each time, needs a `limit`.
        database: the alias of the jobs, by default what the routers give.

    Raises:
        UnknownKind: neither a handler nor a job has one of the kinds.
        InvalidOption: no queue has such a name, or `limit` is no number of attempts.
        AssertionError: an attempt failed without an exception of its handler's, and
            `raise_on_failure` is set.

    """
    alias = database or router.db_for_write(Job)
    kinds, queues = choices(kinds, queues, alias)
    if limit is not None:
        check_count("limit", limit)
    executor = DjangoExecutor(alias)
    board = Board.create(1)
    board.close()  # nobody else looks at it
    lease = Lease.register(executor.execute, board, pid=os.getpid(), queues=None, threads=1)
    names = None if kinds is None else names_of_all(kinds)
    source = _Source(executor, lease, names, queues, alias)
    ends: Counter[str] = Counter()
    failure: Exception | None = None
    with here.at_work():
        while failure is None and (limit is None or ends.total() < limit):
            claims = source.travel_and_claim() if with_delayed else source.claim()
            if not claims:
                break
            for claim in claims:
                ran = runs.run(claim, lease, alias)
                ends[_end(ran.outcome)] += 1
                failure = runs.failure_of(ran) if raise_on_failure else None
        lease.end(executor.execute, "drained")
    if failure is not None:
        raise failure
    return Drained.of(ends)


def choices(
    kinds: Kind | Iterable[Kind] | None, queues: Iterable[str] | None, alias: str
) -> tuple[list[Kind] | None, list[str] | None]:
    """Return the kinds and the queues as lists, or raise where no job could have one of them."""
    if kinds is not None:
        kinds = listed(kinds)
        refuse_misspelt(kinds, Job.objects.using(alias))
    return kinds, None if queues is None else [check_queue(queue) for queue in listed(queues)]


class _Source:
    """Where the next job comes from."""

    def __init__(
        self,
        executor: DjangoExecutor,
        lease: Lease,
        kinds: Sequence[str] | None,
        queues: Sequence[str] | None,
        alias: str,
    ) -> None:
        self._executor, self._alias, self._kinds = executor, alias, kinds
        self._claimer = Claimer(alias, lease.worker, queues)
        self._limited = LimitedClaimer(lease.worker, Served(queues), rates=False)
        jobs = Job.objects.using(alias)
        self._jobs: JobQuerySet = jobs if queues is None else jobs.filter(queue__in=queues)
        if kinds is not None:
            self._jobs = self._jobs.filter(kind__in=kinds)

    def claim(self) -> list[Claim]:
        """Claim the next job, if there is one that is due."""
        if self._kinds is None:
            return self._claim()
        # Delayed ones as well: at the claim it is later than here.
        pending = Job.objects.using(self._alias).pending().filter(run_at__lt=LATEST - FOR_EVER)
        with _put_off(pending.exclude(kind__in=self._kinds)):
            return self._claim()

    def travel_and_claim(self) -> list[Claim]:
        """Claim the next job, and let time pass until one is due, if there is any."""
        claims = self.claim()
        while not claims:
            travelled = travel_to_next(self._jobs)
            claims = self.claim()  # in any case: the last delayed one may have become due meanwhile
            if not travelled:
                break
        return claims

    def _claim(self) -> list[Claim]:
        # Nothing that a job has enqueued meanwhile may wait for the next survey.
        self._claimer.forget()
        claims = self._claimer.claim(self._executor.execute, 1)
        while not claims:
            claims = self._limited.claim(self._executor, 1)
            if self._limited.swept:
                break
        return claims


@contextmanager
def _put_off(others: JobQuerySet) -> Iterator[None]:
    """Let a claim pass these by: for as long as it takes, in a transaction, they are delayed."""
    with transaction.atomic(using=others.db):
        # What another session has locked is passed by as it is.
        ids = list(others.select_for_update(skip_locked=True).values_list("pk", flat=True))
        put_off = Job.objects.using(others.db).filter(lifecycle.one_of(ids))
        put_off.update(run_at=F("run_at") + interval(FOR_EVER))
        yield
        put_off.update(run_at=F("run_at") - interval(FOR_EVER))


def _end(outcome: Outcome | Settled) -> str:
    """Say in a word how an attempt ended."""
    words = {Failed: "failed", Snoozed: "snoozed", Cancelled: "cancelled"}
    return words.get(type(outcome), "done")
