"""Run one claimed job in the test's own thread and connection, and settle it.

Invariant: the handler, its failures and the settle go the way of a worker; the test's transaction stays
usable whatever the job's SQL does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.test import TestCase
from psycopg.pq import TransactionStatus

from django_pgjobs import atomic, conf, execution, failures, outcomes, registry, relay
from django_pgjobs.claims import Claim
from django_pgjobs.deadlines import Deadline
from django_pgjobs.leases import Lease
from django_pgjobs.lines import Line
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Failed, Outcome, Settled
from django_pgjobs.sessions import execute_on_django


class Witness(Deadline):
    """A deadline that never comes, and that sees what left the handler."""

    def __init__(self) -> None:
        """See nothing so far."""
        super().__init__(None)
        self.error: BaseException | None = None

    def verdict(self, error: BaseException | None) -> BaseException | None:
        """Keep the error, which an outcome has only as text."""
        self.error = error
        return error


class Ran(NamedTuple):
    """What became of an attempt, and what its handler raised."""

    outcome: Outcome | Settled
    error: BaseException | None


def run(claim: Claim, lease: Lease, alias: str) -> Ran:
    """Run the handler of `claim` and settle the job."""
    line, witness = _line(claim, alias), Witness()
    outcome = _in_savepoint(claim, lease, alias, line, witness)
    execute = execute_on_django(alias)
    if progress := line.unwritten():
        relay.exchange(execute, lease.worker, [(claim, progress)])
    if not isinstance(outcome, Settled):
        outcomes.settle(execute, lease.worker, [outcome])
    return Ran(outcome, witness.error)


def failure_of(ran: Ran) -> Exception | None:
    """Return what a test is to raise for this attempt, if it failed: what its handler raised."""
    outcome = ran.outcome
    if not isinstance(outcome, Failed):
        return None
    claim = outcome.claim
    # What is no Exception would end the test run.
    if isinstance(ran.error, Exception):
        number = f"attempt {claim.attempts} of {claim.max_attempts}"
        ran.error.add_note(f"Raised in {number} of job {claim.id} ({claim.kind}).")
        return ran.error
    said = failures.summary(outcome.error)
    return AssertionError(f"Job {claim.id} ({claim.kind}) must not fail, got {said!r}.")


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


def _in_savepoint(
    claim: Claim, lease: Lease, alias: str, line: Line, witness: Witness
) -> Outcome | Settled:
    """Keep the test's transaction usable where the job's SQL broke it."""
    connection = connections[alias]
    if not connection.in_atomic_block:
        return _call(claim, lease, alias, line, witness)
    savepoint = transaction.atomic(using=alias)
    # As TestCase does with its own: a handler's atomic(durable=True) may stand inside this one.
    savepoint._from_testcase = True  # type: ignore[attr-defined]  # noqa: SLF001
    with _committing(alias), savepoint:
        outcome = _call(claim, lease, alias, line, witness)
        status = connection.connection.info.transaction_status
        if connection.needs_rollback or status == TransactionStatus.INERROR:
            transaction.set_rollback(True, using=alias)  # to the savepoint, not the whole test
    return outcome


@contextmanager
def _committing(alias: str) -> Iterator[None]:
    """Call what a handler asks for on_commit() after its own commit, which a worker would see, and once.

    Whoever waits for the test's own transaction, or captures callbacks, is not to call it again.
    """
    connection = connections[alias]
    before = len(connection.run_on_commit)
    try:
        with TestCase.captureOnCommitCallbacks(using=alias, execute=True):
            yield
    finally:
        del connection.run_on_commit[before:]


def _call(
    claim: Claim, lease: Lease, alias: str, line: Line, witness: Witness
) -> Outcome | Settled:
    job_type = registry.find(claim.kind)
    if (job_type is not None and job_type.atomic) or _is_claimed_by_transaction(claim, alias):
        return atomic.run(claim, lease, alias, lambda: witness, line=line)
    if job_type is not None and job_type.is_async:
        return async_to_sync(execution.arun)(claim, lease.name, witness, line=line)
    return execution.run(claim, lease.name, witness, line)


def _is_claimed_by_transaction(claim: Claim, alias: str) -> bool:
    queues = conf.get().transaction_queues
    return bool(queues) and Job.objects.using(alias).filter(pk=claim.id, queue__in=queues).exists()
