"""Run one claimed job and say what became of it.

Invariant: nothing here writes to the job's row, and nothing a handler does gets past here: each
call ends in an `Outcome`. What a job leaves behind in its thread ends with the job.
"""

from __future__ import annotations

import contextvars
import inspect
import logging
import random
from typing import Any

from asgiref.sync import async_to_sync
from django.db import connections
from psycopg.pq import TransactionStatus

from django_pgjobs import conf, failures, payloads, retries
from django_pgjobs.claims import Claim
from django_pgjobs.exceptions import InvalidPayload, PgJobsError, UnknownKind
from django_pgjobs.outcomes import Done, Failed, Outcome
from django_pgjobs.registry import get_job

logger = logging.getLogger(__name__)

_RNG = random.Random()  # noqa: S311 -- spreads retries, hides nothing
_OPEN = {TransactionStatus.ACTIVE, TransactionStatus.INTRANS, TransactionStatus.INERROR}


def run(claim: Claim, worker: str) -> Outcome:
    """Run the handler of `claim` in this thread and return the outcome."""
    logger.debug("Job %s (%s) starts.", claim.id, claim.kind, extra=_extra(claim))
    try:
        job_type = get_job(claim.kind)
        payload = payloads.decode(claim.payload)
    except (UnknownKind, InvalidPayload) as error:
        return failed(claim, error, worker, permanent=True)
    except Exception as error:  # noqa: BLE001 -- loading a model instance asks its database
        return failed(claim, error, worker)
    try:
        if job_type.is_async:
            value = async_to_sync(job_type.handler)(**payload)
        else:
            value = job_type.handler(**payload)
            if inspect.iscoroutine(value):  # an async handler behind a decorator that is not
                value = async_to_sync(lambda: value)()
    # SystemExit ends the handler, not the worker, and whatever else it raises is the job's too.
    except BaseException as error:  # noqa: BLE001
        return failed(claim, error, worker)
    result, unstorable = payloads.result_text(value, max_bytes=conf.get().max_payload_bytes)
    if unstorable:
        logger.warning(
            "Job %s (%s) is done, but %s", claim.id, claim.kind, unstorable, extra=_extra(claim)
        )
    logger.info("Job %s (%s) is done.", claim.id, claim.kind, extra=_extra(claim))
    return Done(claim, result)


def run_in_thread(claim: Claim, worker: str) -> Outcome:
    """`run()` in a worker's own thread: on healthy connections, and leaving nothing behind.

    The job gets a fresh context (language, time zone, context variables), and its connections are
    treated as Django treats them at the end of a request. Do not use it in a thread whose
    transaction is somebody else's, such as a test's.
    """
    for connection in _connections():
        connection.close_if_unusable_or_obsolete()
        connection.health_check_enabled = True  # its first query finds out that the server is gone
    outcome = contextvars.Context().run(run, claim, worker)
    left = [c.alias for c in _connections() if _clean(c)]
    if left and isinstance(outcome, Done):
        error = TransactionLeftOpen(
            f"The handler returned with a transaction open on {', '.join(map(repr, left))}: it was "
            "rolled back. Leave atomic() blocks before returning, and commit what you began."
        )
        return failed(claim, error, worker)
    return outcome


def failed(
    claim: Claim,
    error: BaseException,
    worker: str,
    *,
    permanent: bool = False,
    delay: float | None = None,
) -> Failed:
    """Return the outcome of an attempt that ended with `error`.

    `permanent` leaves no further attempt; `delay` is the time to it, by default the policy's.
    """
    if permanent or claim.attempts >= claim.max_attempts:
        delay = None
    elif delay is None:
        delay = retries.DEFAULT.delay(claim.attempt, _RNG)
    entry = failures.entry(error, attempt=claim.attempts, worker=worker)
    text = "Job %s (%s) failed in attempt %s of %s: %s"
    verdict = "it is given up." if delay is None else f"the next one is in {delay:.1f} s."
    facts = (claim.id, claim.kind, claim.attempts, claim.max_attempts, verdict)
    try:
        logger.warning(text, *facts, exc_info=error, extra=_extra(claim))
    # Whoever formats the record asks the exception, whose methods may raise even a SystemExit.
    except BaseException:  # noqa: BLE001
        logger.warning(text, *facts, extra=_extra(claim))
    return Failed(claim, entry, delay, interrupts=isinstance(error, KeyboardInterrupt))


class TransactionLeftOpen(PgJobsError):
    """A handler returned inside a transaction."""


def _connections() -> list[Any]:  # Any: django-stubs knows half of the wrapper's attributes
    return list(connections.all(initialized_only=True))


def _clean(connection: Any) -> bool:
    """Leave the connection fit for the next job; say whether a transaction was left open."""
    connection.queries_log.clear()  # with DEBUG on it would grow for ever
    session = connection.connection
    if session is None and not connection.in_atomic_block:
        return False
    postgres = session is not None and connection.vendor == "postgresql"
    unfinished = postgres and session.info.transaction_status in _OPEN
    if connection.in_atomic_block or (unfinished and connection.settings_dict["AUTOCOMMIT"]):
        # Django's wrapper cannot leave an atomic block that nobody will exit: replace it.
        if session is not None:
            connection._close()  # noqa: SLF001 -- close() inside atomic() keeps the wrapper's state
        del connections[connection.alias]
        return True
    connection.close_if_unusable_or_obsolete()
    return False


def _extra(claim: Claim) -> dict[str, object]:
    return {"job_id": claim.id, "kind": claim.kind, "attempt": claim.attempts}
