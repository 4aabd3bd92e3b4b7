"""The framework's signals and log, from the enqueue and from the worker.

The framework listens to its own signals, to log them. A result is made for somebody who looks at it:
where only the log would, it is told the three facts that it writes.

Invariant: a signal's sender is the class of the backend, and no receiver changes what becomes of a job
in the worker; `task_finished` is sent once for each task that a handler ended, never before another
attempt.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings
from django.db import Error, connections, transaction
from django.dispatch import Signal
from django.utils import timezone
from django.utils.log import RequireDebugTrue

from django_pgjobs.outcomes import Cancelled, Done, Failed, Settled
from django_pgjobs.tasks import framework
from django_pgjobs.tasks.framework import TaskResultStatus, set_attributes

if TYPE_CHECKING:
    from django_pgjobs.claims import Claim
    from django_pgjobs.outcomes import Outcome
    from django_pgjobs.tasks.task_types import TaskType

logger = logging.getLogger(__name__)

Telling = Callable[[], object]

_error: ContextVar[BaseException | None] = ContextVar("pgjobs_task_error", default=None)
_written: ContextVar[bool] = ContextVar("pgjobs_task_is_written", default=True)
_LOGGER: logging.Logger = framework.signals.logger
_ENQUEUED, _STARTED, _FINISHED = (
    (framework.signals.task_enqueued, framework.signals.log_task_enqueued),
    (framework.signals.task_started, framework.signals.log_task_started),
    (framework.signals.task_finished, framework.signals.log_task_finished),
)


class _Brief(NamedTuple):
    """What the framework's log says of a task."""

    id: str
    task: Any
    status: TaskResultStatus


def enqueued_is_heard() -> bool:
    """Say whether anybody but the framework's log listens to `task_enqueued`."""
    signal, log = _ENQUEUED
    return any(receiver[0][0] != id(log) for receiver in signal.receivers)


def enqueued(backend: type[Any], result: Any) -> None:
    """Send `task_enqueued`, in the caller's transaction: what a receiver raises is the caller's."""
    others, log = _audience(*_ENQUEUED, written=_is_written(logging.DEBUG))
    if others or log:
        _ENQUEUED[0].send(sender=backend, task_result=result)


def started(task_type: TaskType, claim: Claim) -> Telling | None:
    """Log the start of an attempt, or return what tells those who listen to `task_started`.

    Whether a handler takes such a record is asked here for the end of the attempt too.
    """
    note(None)
    written = _is_written(logging.INFO)
    _written.set(written)
    others, log = _audience(*_STARTED, written=written)
    if others:
        return partial(_send_started, task_type, claim.id)
    if log:
        brief = _Brief(str(claim.id), task_type.task, TaskResultStatus.RUNNING)
        log(None, brief)  # whose sender nobody looks at
    return None


def ended(task_type: TaskType, claim: Claim, outcome: Outcome | Settled) -> Telling | None:
    """Log the end of a task, or return what tells those who listen to `task_finished`."""
    status = _status_of(outcome)
    if status is None:
        return None
    succeeded = status is TaskResultStatus.SUCCESSFUL
    written = _written.get() if succeeded else _LOGGER.isEnabledFor(logging.ERROR)
    others, log = _audience(*_FINISHED, written=written)
    if others:
        return partial(_send_finished, task_type, claim, outcome, status)
    if log:
        brief = _Brief(str(claim.id), task_type.task, status)
        if error := _raised(status):
            _handling(error, partial(log, None, brief))
        else:
            log(None, brief)
    return None


def note(error: BaseException | None) -> None:
    """Keep what a function raised for the log: the signal is sent when the outcome is known."""
    _error.set(error)


def _send_started(task_type: TaskType, job_id: int) -> None:
    if result := _read(task_type, job_id):
        _send(_STARTED[0], result)


def _send_finished(
    task_type: TaskType, claim: Claim, outcome: Outcome | Settled, status: TaskResultStatus
) -> None:
    from django_pgjobs.tasks import results  # noqa: PLC0415 -- likewise

    result = _read(task_type, claim.id)
    if result is None:
        return
    if (
        not result.is_finished
    ):  # the row says it when the outcome is written, with those of other jobs
        set_attributes(result, status=status, finished_at=timezone.now())
        if isinstance(outcome, Done):
            set_attributes(
                result, _return_value=results.value(json.loads(outcome.result or "null"))
            )
        elif isinstance(outcome, Failed | Cancelled):
            result.errors.append(results.error(outcome.error))
    _handling(_raised(status), partial(_send, _FINISHED[0], result))


def _send(signal: Signal, result: Any) -> None:
    """Send to everybody, each transaction that is open in a savepoint: an SQL error would end it."""
    try:
        with ExitStack() as savepoints:
            for connection in connections.all(initialized_only=True):
                if connection.in_atomic_block:
                    savepoints.enter_context(transaction.atomic(using=connection.alias))
            signal.send_robust(sender=_backend_of(result.backend), task_result=result)
    except Error:  # what a receiver did cannot be kept: its savepoint is rolled back
        logger.exception("What the receivers of a signal of task %s wrote is not kept.", result.id)


def _read(task_type: TaskType, job_id: int) -> Any:
    """Return the result as the row has it; None where it is gone or cannot be read, which ends no job."""
    from django_pgjobs.tasks import results  # noqa: PLC0415 -- no models before the apps are loaded

    try:
        job = results.row(job_id)
        return None if job is None else results.of(task_type, job)
    except Exception:  # the database may be away, and what SQL has put into the row may be anything
        logger.exception("Nobody is told of job %s, which cannot be read.", job_id)
        return None


def _status_of(outcome: Outcome | Settled) -> TaskResultStatus | None:
    """Return how the task has ended; None where it goes on."""
    if isinstance(outcome, (Done, Settled)):  # a union would be made at each call
        return TaskResultStatus.SUCCESSFUL
    if isinstance(outcome, Cancelled) or (isinstance(outcome, Failed) and outcome.delay is None):
        return TaskResultStatus.FAILED
    return None


def _audience(
    signal: Signal, log: Callable[..., None], *, written: bool
) -> tuple[bool, Callable[..., None] | None]:
    """Say whether anybody but the framework's log listens, and return that if it is `written`."""
    receivers = signal.receivers
    if len(receivers) == 1 and receivers[0][0][0] == id(log):  # the most common case, quickly
        others, logging_too = False, True
    else:
        listening = [receiver[0][0] for receiver in receivers]  # the id of each, or its own
        logging_too = id(log) in listening
        others = len(listening) > logging_too
    return others, log if logging_too and written else None


def _is_written(level: int) -> bool:
    """Say whether a handler takes such a record of the framework's log, which is no error.

    By Django's own settings it is enabled and written nowhere while DEBUG is off; to make its records was a
    third of what a short task costs.
    """
    if not _LOGGER.isEnabledFor(level):
        return False
    logger: logging.Logger | None = _LOGGER
    while logger is not None:
        for handler in logger.handlers:
            if level >= handler.level and not _waits_for_debug(handler):
                return True
        logger = logger.parent if logger.propagate else None
    return False


def _waits_for_debug(handler: logging.Handler) -> bool:
    """Say whether it is one that Django lets write while DEBUG is on, which it is not."""
    for condition in handler.filters:  # any() would take three times as long
        if isinstance(condition, RequireDebugTrue):
            return not settings.DEBUG
    return False


def _backend_of(alias: str) -> type[Any]:
    """Return the class of a backend, or of this app's where the settings have lost it."""
    try:
        return type(framework.task_backends[alias])
    except framework.InvalidTaskBackend:
        from django_pgjobs.tasks.backend import PgJobsBackend  # noqa: PLC0415 -- it imports this

        return PgJobsBackend


def _raised(status: TaskResultStatus) -> BaseException | None:
    return _error.get() if status == TaskResultStatus.FAILED else None


def _handling(error: BaseException | None, tell: Telling) -> None:
    """Call where `sys.exc_info()` shows this error, as the framework's log wants it."""
    if error is None:
        tell()
        return
    try:
        raise error
    except BaseException:  # noqa: BLE001 -- it was the task's, and its outcome is known
        tell()
