"""Run a job and settle it in one transaction: what its handler wrote and `done` commit together.

The transaction is on Django's own connection of this thread, the one that the handler writes on. An
error, a timeout, a lost lease or a lost connection rolls both back.

Invariant: nothing that the handler wrote to the jobs database is committed without the fenced settle
of its claim; a failure that comes back from here has left nothing there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from django.db import connections, transaction
from psycopg.pq import TransactionStatus

from django_pgjobs import execution, leftovers, outcomes, statements
from django_pgjobs.claims import Claim
from django_pgjobs.deadlines import Deadline
from django_pgjobs.exceptions import PgJobsError
from django_pgjobs.leases import Lease
from django_pgjobs.lines import Line
from django_pgjobs.outcomes import Done, NotDone, Outcome, Settled
from django_pgjobs.registry import find
from django_pgjobs.sessions import execute_on_django

logger = logging.getLogger(__name__)


class TransactionBroken(PgJobsError):
    """A handler returned, but its transaction could not be committed."""


class AsyncInTransaction(PgJobsError):
    """A job with an async handler is in a queue that is claimed by transaction."""


def run(  # noqa: PLR0913 -- what an attempt needs
    claim: Claim,
    lease: Lease,
    alias: str,
    begin: Callable[[], Deadline] = lambda: execution.NEVER,
    *,
    inner: bool = False,
    line: Line | None = None,
) -> Settled | NotDone:
    """Run the handler of `claim` and complete the job, in one transaction on `alias`; then tell its kind.

    Any other outcome is the caller's to settle. A failure may have come from a COMMIT without an answer, which took
    effect after all: then the fence refuses it. `begin` is called just before the handler; `inner` is
    for a transaction of the caller's.
    """
    outcome = _run(claim, lease, alias, begin, inner=inner, line=line)
    execution.tell(claim, outcome)
    return outcome


def _run(  # noqa: PLR0913 -- likewise
    claim: Claim,
    lease: Lease,
    alias: str,
    begin: Callable[[], Deadline],
    *,
    inner: bool,
    line: Line | None,
) -> Settled | NotDone:
    job_type = find(claim.kind)
    if job_type is not None and job_type.is_async:
        error = AsyncInTransaction(
            f"The kind {claim.kind!r} has an async handler, which has no transactions, and this "
            "queue is claimed by transaction. Make it sync, or give it a queue claimed by lease."
        )
        return execution.failed(claim, error, lease.name, permanent=True)
    outcome: Outcome | None = None
    committed: list[bool] = []
    process = os.getpid()
    let_django_commit(alias)
    try:
        with transaction.atomic(using=alias, durable=not inner):
            connection = connections[alias]
            blocks = list(connection.atomic_blocks)
            if len(blocks) == 1:
                # The first hook of all: what a later one raises does not undo the commit.
                transaction.on_commit(lambda: committed.append(True), using=alias)
            outcome = execution.run_untold(claim, lease.name, begin(), line)
            if os.getpid() != process:
                os._exit(1)  # a fork that the handler let return would settle on our connection
            if isinstance(outcome, Done):
                _check(connection, blocks)
                _complete(outcome, lease.worker, alias)
            else:
                transaction.set_rollback(True, using=alias)
    # As in execution: whatever the handler or its callbacks raise is the job's.
    except BaseException as error:  # noqa: BLE001
        if committed:
            log_callback(claim, error)
            return Settled(claim)
        # Rolling back on a lost connection fails too, which is no news.
        return (
            outcome if isinstance(outcome, NotDone) else execution.failed(claim, error, lease.name)
        )
    return outcome if isinstance(outcome, NotDone) else Settled(claim)


def log_callback(claim: Claim, error: BaseException) -> None:
    """Log what came out of the commit of a job: the error of a callback, which undoes nothing."""
    logger.error(
        "Job %s (%s) is settled, but a function that it gave to on_commit() failed.",
        claim.id,
        claim.kind,
        exc_info=error,
        extra={"job_id": claim.id, "kind": claim.kind},
    )


def let_django_commit(alias: str) -> None:
    """Turn autocommit on, since without it atomic() leaves the commit to its caller."""
    connection = connections[alias]
    if not connection.in_atomic_block and not connection.get_autocommit():
        connection.set_autocommit(True)


def _check(connection: Any, blocks: list[Any]) -> None:
    """Refuse to commit what is not the handler's whole transaction.

    Raises:
        TransactionLeftOpen, TransactionBroken: it is not.

    """
    alias = connection.alias
    if connections[alias] is not connection or connection.atomic_blocks != blocks:
        raise leftovers.TransactionLeftOpen.on([alias])
    if left := leftovers.roll_back(but=alias):
        raise leftovers.TransactionLeftOpen.on(left)
    session = connection.connection
    status = session and session.info.transaction_status
    if connection.needs_rollback or status == TransactionStatus.INERROR:
        raise TransactionBroken(
            "The handler returned, but a statement had failed in its transaction, or it was set to "
            "be rolled back: nothing of it is kept. Put what may fail into an atomic() of its own."
        )


def _complete(done: Done, worker: int, alias: str) -> None:
    """Settle in the transaction that is open, and wait for the row where somebody has locked it.

    Only this job waits. A lock that waits for this transaction in turn is a deadlock, which
    PostgreSQL ends; trying again and again would hide it.
    """
    execute = execute_on_django(alias)
    left = outcomes.settle(execute, worker, [done])
    if left.locked:
        execute(statements.WAIT, {"worker": worker, "id": done.claim.id})
        left = outcomes.settle(execute, worker, [done])
    if left.stale or left.locked:
        raise TransactionBroken(
            "The handler returned, but the job did not belong to its worker any more: nothing that "
            "it wrote is kept."
        )
