"""Run one claimed job and say what became of it.

Invariant: nothing here writes to the job's row, and nothing a handler does gets past here: each
call ends in an `Outcome`. What a job leaves behind in its thread ends with the job.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async

from django_pgjobs import conf, delays, failures, leftovers, payloads, retries
from django_pgjobs.claims import Claim
from django_pgjobs.context import JobContext
from django_pgjobs.deadlines import Deadline
from django_pgjobs.exceptions import Discard, InvalidPayload, JobCancelled, Snooze, UnknownKind
from django_pgjobs.lines import Line
from django_pgjobs.outcomes import Cancelled, Done, Failed, NotDone, Outcome, Settled, Snoozed
from django_pgjobs.registry import find, get_job

logger = logging.getLogger(__name__)

NEVER = Deadline(None)
_RNG = random.Random()  # noqa: S311 -- spreads retries, hides nothing

Telling = Callable[[], object]
Prepared = tuple[Callable[..., Any], dict[str, Any], Telling | None]
Attempt = Callable[[Claim, str, Deadline], Outcome | Settled]


def run(claim: Claim, worker: str, deadline: Deadline = NEVER, line: Line | None = None) -> Outcome:
    """Run the sync handler of `claim` in this thread, tell its kind of the outcome and return that."""
    outcome = run_untold(claim, worker, deadline, line)
    tell(claim, outcome)
    return outcome


def run_untold(
    claim: Claim, worker: str, deadline: Deadline = NEVER, line: Line | None = None
) -> Outcome:
    """`run()` for a caller that tells the kind later: the handler is in a transaction of the caller's."""
    try:
        with deadline:
            prepared = _prepare(claim, worker, line)
            if isinstance(prepared, Failed):
                return prepared
            handler, payload, telling = prepared
            if telling:
                telling()
            value = handler(**payload)
            if inspect.iscoroutine(value):  # an async handler behind a decorator that is not
                value = async_to_sync(_result)(value)
    # SystemExit ends the handler, not the worker, and whatever else it raises is the job's too.
    except BaseException as error:  # noqa: BLE001
        return _conclude(claim, worker, None, deadline.verdict(error))
    return _conclude(claim, worker, value, deadline.verdict(None))


async def arun(
    claim: Claim,
    worker: str,
    deadline: Deadline = NEVER,
    tidy: Callable[[], Awaitable[None]] | None = None,
    line: Line | None = None,
) -> Outcome:
    """Run the async handler of `claim` in this task, then `tidy()`; tell its kind, and return the outcome."""
    outcome = await _arun(claim, worker, deadline, tidy, line)
    if telling := _telling(claim, outcome):
        await sync_to_async(telling)()
    return outcome


async def _arun(
    claim: Claim,
    worker: str,
    deadline: Deadline,
    tidy: Callable[[], Awaitable[None]] | None,
    line: Line | None,
) -> Outcome:
    try:
        with deadline:
            prepare = sync_to_async(_prepare) if payloads.names_instance(claim.payload) else None
            prepared = (
                await prepare(claim, worker, line) if prepare else _prepare(claim, worker, line)
            )
            if isinstance(prepared, Failed):
                return prepared
            handler, payload, telling = prepared
            try:
                if telling:
                    await sync_to_async(telling)()
                value = await handler(**payload)
            finally:
                if tidy:
                    await tidy()
    # As above. SystemExit and KeyboardInterrupt would also end the event loop.
    except BaseException as error:  # noqa: BLE001
        return _conclude(claim, worker, None, deadline.verdict(_as_asked(error, line)))
    return _conclude(claim, worker, value, deadline.verdict(None))


def run_in_thread(
    claim: Claim,
    worker: str,
    deadline: Deadline = NEVER,
    attempt: Attempt = run,
) -> Outcome | Settled:
    """`run()` in a worker's own thread: on healthy connections, and leaving nothing behind.

    The job gets a fresh context (language, time zone, context variables), and its connections are
    treated as Django treats them at the end of a request. Do not use it in a thread whose
    transaction is somebody else's, such as a test's.
    """
    leftovers.check_before()
    process = os.getpid()
    outcome = contextvars.Context().run(attempt, claim, worker, deadline)
    if os.getpid() != process:
        os._exit(1)  # a fork that the handler let return: this worker's claims are not its own
    left = leftovers.remove()
    if left and isinstance(outcome, Done):
        return failed(claim, leftovers.TransactionLeftOpen.on(left), worker)
    return outcome


def tell(claim: Claim, outcome: Outcome | Settled) -> None:
    """Tell the kind of a job how this attempt has ended."""
    if telling := _telling(claim, outcome):
        telling()


def _telling(claim: Claim, outcome: Outcome | Settled) -> Telling | None:
    job_type = find(claim.kind)
    return job_type.ended(claim, outcome) if job_type and job_type.ended else None


def _as_asked(error: BaseException, line: Line | None) -> BaseException:
    """Return what ended an async handler: its cancellation is the job's, if that was requested."""
    if line is None or not line.asked or not issubclass(type(error), asyncio.CancelledError):
        return error
    cancelled = JobCancelled()
    cancelled.__cause__ = error
    return cancelled


def _prepare(claim: Claim, worker: str, line: Line | None) -> Prepared | Failed:
    """Return the handler, its arguments and what tells of the start, or why there are none."""
    if logger.isEnabledFor(logging.DEBUG):  # asked first: a short job takes no longer than the rest
        logger.debug("Job %s (%s) starts.", claim.id, claim.kind, extra=_extra(claim))
    try:
        job_type, payload = get_job(claim.kind), payloads.decode(claim.payload)
        if job_type.check_stored:
            job_type.check_stored(payload)
    except (UnknownKind, InvalidPayload) as error:
        return failed(claim, error, worker, permanent=True)
    telling = job_type.started(claim) if job_type.started else None
    if job_type.takes_context:
        return partial(job_type.handler, JobContext(claim, line or Line())), payload, telling
    return job_type.handler, payload, telling


def _conclude(claim: Claim, worker: str, value: object, error: BaseException | None) -> Outcome:
    """Turn what the handler returned or raised into the outcome."""
    if error is not None:
        return _not_done(claim, error, worker)
    result, unstorable = payloads.result_text(value, max_bytes=conf.get().max_payload_bytes)
    if unstorable:
        logger.warning(
            "Job %s (%s) is done, but %s", claim.id, claim.kind, unstorable, extra=_extra(claim)
        )
    if logger.isEnabledFor(logging.INFO):
        logger.info("Job %s (%s) is done.", claim.id, claim.kind, extra=_extra(claim))
    return Done(claim, result)


def _not_done(claim: Claim, error: BaseException, worker: str) -> NotDone:
    """Turn what left the handler into the outcome."""
    # Not isinstance(), which believes what an object says of its own class, and runs the code that does.
    if issubclass(type(error), JobCancelled):
        text = "Job %s (%s) is cancelled in attempt %s."
        logger.info(text, claim.id, claim.kind, claim.attempts, extra=_extra(claim))
        return Cancelled(claim, failures.entry(error, attempt=claim.attempts, worker=worker))
    if not issubclass(type(error), Snooze):
        return failed(claim, error, worker)
    delay = delays.seconds(vars(error).get("delay"))
    if delay is None:  # a subclass that does not check it
        return failed(claim, error, worker)
    logger.info(
        "Job %s (%s) is snoozed for %.1f s.", claim.id, claim.kind, delay, extra=_extra(claim)
    )
    return Snoozed(claim, delay)


def failed(
    claim: Claim,
    error: BaseException,
    worker: str,
    *,
    permanent: bool = False,
    delay: float | None = None,
) -> Failed:
    """Return the outcome of an attempt that ended with `error`.

    `permanent` leaves no further attempt; `delay` is the time to it, where what ended the attempt came
    from outside. By default the options of its kind decide both.
    """
    interrupts = issubclass(type(error), KeyboardInterrupt)
    if permanent or claim.attempts >= claim.max_attempts:
        delay = None
    elif delay is None:
        try:
            delay = _next_delay(claim, error)
        except Discard as discard:  # a policy gives up, for a reason of its own
            discard.__cause__ = error
            error = discard
    entry = failures.entry(error, attempt=claim.attempts, worker=worker)
    verdict = "it is given up." if delay is None else f"the next one is in {delay:.1f} s."
    text = "Job %s (%s) failed in attempt %s of %s: %s"
    _log(logging.WARNING, error, claim, text, claim.attempts, claim.max_attempts, verdict)
    return Failed(claim, entry, delay, interrupts)


def _next_delay(claim: Claim, error: BaseException) -> float | None:
    """Return the time to the next attempt, by the options of its kind; None gives up."""
    job_type = find(claim.kind)
    rules = retries.DEFAULTS if job_type is None else job_type.retries
    try:
        return rules.delay(claim.attempt, error, _RNG)
    except Discard:
        raise
    # A policy may be code of the project's, and fail in any way. The job must not be lost by that.
    except BaseException as broken:  # noqa: BLE001
        text = "Job %s (%s) is retried by the default policy, since the one of its kind failed."
        _log(logging.ERROR, broken, claim, text)
        return retries.DEFAULT.spread(retries.DEFAULT(claim.attempt), _RNG)


def _log(level: int, error: BaseException, claim: Claim, text: str, *facts: object) -> None:
    facts = (claim.id, claim.kind, *facts)
    try:
        logger.log(level, text, *facts, exc_info=error, extra=_extra(claim))
    # Whoever formats the record asks the exception, whose methods may raise even a SystemExit.
    except BaseException:  # noqa: BLE001
        logger.log(level, text, *facts, extra=_extra(claim))


async def _result(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return await coroutine


def _extra(claim: Claim) -> dict[str, object]:
    return {"job_id": claim.id, "kind": claim.kind, "attempt": claim.attempts}
