"""Run jobs inside a test: in its own transaction, its own thread, at a moment of its choosing.

Invariant: `drain()` uses the claim, the handlers' registry and the settle of a real worker; only the
threads and the connection differ, so what passes here is what a worker does.
"""

from __future__ import annotations

import os

from asgiref.sync import async_to_sync
from django.db import connections, router, transaction
from django.test import TestCase
from psycopg.pq import TransactionStatus

from django_pgjobs import atomic, conf, execution, outcomes, registry, relay
from django_pgjobs.board import Board
from django_pgjobs.claims import Claim, Claimer, Served
from django_pgjobs.leases import Lease
from django_pgjobs.limited_claims import LimitedClaimer
from django_pgjobs.lines import Line
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Outcome, Settled
from django_pgjobs.sessions import DjangoExecutor, Executor


def drain() -> int:
    """Run due jobs one after the other until none is due; return how many attempts were run.

    Jobs that they enqueue are run too. A failed attempt leaves its job pending, with a time in the
    future, or failed, as in production; look at the rows, or raise `job.last_error`. Rates hold nothing
    back here: how many run does not depend on how fast the test is.
    """
    alias = router.db_for_write(Job)
    executor = DjangoExecutor(alias)
    execute = executor.execute
    board = Board.create(1)
    board.close()  # nobody else looks at it
    lease = Lease.register(execute, board, pid=os.getpid(), queues=None, threads=1)
    claimer = Claimer(alias, lease.worker)
    limited = LimitedClaimer(lease.worker, Served(), rates=False)
    attempts = 0
    while claims := claimer.claim(execute, 1) or _claim_limited(limited, executor):
        [claim] = claims
        line = _line(claim, alias)
        outcome = _run(claim, lease, alias, line)
        if progress := line.unwritten():
            relay.exchange(execute, lease.worker, [(claim, progress)])
        if not isinstance(outcome, Settled):
            outcomes.settle(execute, lease.worker, [outcome])
        attempts += 1
    lease.end(execute, "drained")
    return attempts


def _claim_limited(claimer: LimitedClaimer, executor: Executor) -> list[Claim]:
    claims = claimer.claim(executor, 1)
    while not claims and not claimer.swept:
        claims = claimer.claim(executor, 1)
    return claims


class _LineToTheRow(Line):
    """Without a worker that looks meanwhile, the row is asked each time."""

    def __init__(self, claim: Claim, alias: str, *, silent: bool) -> None:
        self._row = Job.objects.using(alias).filter(pk=claim.id)
        super().__init__(alias, silent=silent)

    @property
    def asked(self) -> bool:
        return self._row.filter(cancel_requested_at__isnull=False).exists()

    @asked.setter
    def asked(self, value: bool) -> None: ...


def _line(claim: Claim, alias: str) -> Line:
    job_type = registry.find(claim.kind)
    silent = job_type is not None and job_type.atomic
    if job_type is not None and job_type.is_async:
        return Line(alias)  # Django's sync ORM is not for async code
    return _LineToTheRow(claim, alias, silent=silent)


def _run(claim: Claim, lease: Lease, alias: str, line: Line) -> Outcome | Settled:
    """Run one job; keep the test's transaction usable where the job's SQL broke it."""
    connection = connections[alias]
    if not connection.in_atomic_block:
        return _call(claim, lease, alias, line)
    savepoint = transaction.atomic(using=alias)
    # As TestCase does with its own: a handler's atomic(durable=True) may stand inside this one.
    savepoint._from_testcase = True  # type: ignore[attr-defined]  # noqa: SLF001
    # What a handler asks for on_commit() happens after its own commit, which a worker would see.
    with TestCase.captureOnCommitCallbacks(using=alias, execute=True), savepoint:
        outcome = _call(claim, lease, alias, line)
        status = connection.connection.info.transaction_status
        if connection.needs_rollback or status == TransactionStatus.INERROR:
            transaction.set_rollback(True, using=alias)  # to the savepoint, not the whole test
    return outcome


def _call(claim: Claim, lease: Lease, alias: str, line: Line) -> Outcome | Settled:
    job_type = registry.find(claim.kind)
    if (job_type is not None and job_type.atomic) or _is_claimed_by_transaction(claim, alias):
        return atomic.run(claim, lease, alias, line=line)
    if job_type is not None and job_type.is_async:
        return async_to_sync(execution.arun)(claim, lease.name, line=line)
    return execution.run(claim, lease.name, line=line)


def _is_claimed_by_transaction(claim: Claim, alias: str) -> bool:
    queues = conf.get().transaction_queues
    return bool(queues) and Job.objects.using(alias).filter(pk=claim.id, queue__in=queues).exists()
