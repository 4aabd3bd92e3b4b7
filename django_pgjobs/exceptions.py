"""Every exception and warning of the package, in one tree.

    PgJobsError
    ├── InvalidOption    (ValueError)     an option of @job or .using() has the wrong type or range
    │   └── InvalidDelay                  so has the delay of a Retry or a Snooze
    ├── InvalidPayload   (ValueError)     a payload cannot be stored, or does not fit its handler
    ├── UnknownKind      (LookupError)    no handler is registered for a kind
    ├── DuplicateKind                     two handlers claim one kind
    ├── DuplicateJob                      another job holds the unique key of a new one
    ├── JobTimeout                        an attempt ran longer than its kind's timeout
    ├── WorkerLost                        the worker of an attempt died
    ├── Retry                             raised by a handler: failed, try again after a delay
    ├── Snooze                            raised by a handler: run me later, this was no attempt
    ├── Discard                           raised by a handler: failed, and never to be tried again
    ├── JobCancelled                      raised by a handler: it stops, and the job is cancelled
    ├── WaitTimeout      (TimeoutError)   a job was not final within the time to wait for it
    ├── WaitInTransaction                 a job was waited for inside a transaction
    ├── QueueMissing     (LookupError)    pgmq has no queue of this name
    ├── PgmqMissing                       pgmq is not installed on a database, or cannot be
    └── PrivilegeMissing                  the role of a worker lacks privileges or policies

    PgJobsWarning        (RuntimeWarning)
    └── ForeignTransaction                a job was enqueued outside the transaction that is open

    Interrupted          (BaseException)  raised inside a handler whose time is over

Invariant: whatever the package raises on purpose is a `PgJobsError`, and is raised before any SQL
unless its text says otherwise, so that the caller's transaction stays usable.
"""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Sequence
from typing import Self

from django_pgjobs import delays


class PgJobsError(Exception):
    """Base of all errors that this package raises on purpose."""


class InvalidOption(PgJobsError, ValueError):
    """An option of `@job`, `.using()` or a command has the wrong type or is out of range."""


class InvalidDelay(InvalidOption):
    """A delay is negative, not finite, too long, or no delay at all."""


class InvalidPayload(PgJobsError, ValueError):
    """A payload cannot be stored as it is, does not fit the handler, or cannot be read back."""


class UnknownKind(PgJobsError, LookupError):
    """No handler is registered for this kind."""


class DuplicateKind(PgJobsError):
    """Two different handlers are registered for one kind."""


class DuplicateJob(PgJobsError):
    """Another job holds the unique key of a new one, whose rule says `conflict="raise"`.

    `job_id` is the other job's; None where both are in one `enqueue_many()`.
    """

    job_id: int | None = None

    @classmethod
    def of(cls, kind: str, job_id: int | None) -> Self:
        """Name the job that is there already."""
        holder = "another one of this batch" if job_id is None else f"job {job_id}"
        error = cls(
            f"A job of the kind {kind!r} must have a unique key that is free, got that of {holder}. "
            'Catch this error, or choose conflict="skip" or "replace".'
        )
        error.job_id = job_id
        return error


class JobTimeout(PgJobsError):
    """An attempt ran longer than the `timeout` of its kind. Its job keeps it as the error."""

    @classmethod
    def after(cls, seconds: float | None) -> Self:
        """Name the timeout; None is that of another process's code, or of what it ran in."""
        shown = "the time that it had" if seconds is None else f"its timeout of {seconds:g} s"
        return cls(f"The handler ran longer than {shown}.")


class WorkerLost(PgJobsError):
    """The worker of an attempt died. Its job keeps it as the error, by this name; nothing raises it."""


class Retry(PgJobsError):
    """Raise it in a handler: the attempt has failed, and the next one starts after `delay`.

    `delay` is a timedelta or a number of seconds, None leaves it to the policy. Without an attempt left
    the job has failed for good.

    Raises:
        InvalidDelay: `delay` is negative, not finite, longer than 100 years, or no delay at all.

    """

    delay: float | None = None  # seconds

    def __init__(self, delay: float | datetime.timedelta | None = None) -> None:
        """Check the delay."""
        super().__init__(delay)
        if delay is not None:
            self.delay = _checked("Retry", delay)

    def __str__(self) -> str:
        when = "" if self.delay is None else f" in {self.delay:g} s"
        reason = "" if self.__cause__ is None else f" Its reason: {self.__cause__!r}"
        return f"The handler asked for another attempt{when}.{reason}"


class Snooze(PgJobsError):
    """Raise it in a handler: run the job again after `delay`, as if this had been no attempt.

    `delay` is a timedelta or a number of seconds.

    Raises:
        InvalidDelay: `delay` is negative, not finite, longer than 100 years, or no delay at all.

    """

    def __init__(self, delay: float | datetime.timedelta) -> None:
        """Check the delay."""
        super().__init__(delay)
        self.delay = _checked("Snooze", delay)  # seconds

    def __str__(self) -> str:
        return f"The handler asked to be run again in {self.delay:g} s."


class Discard(PgJobsError):
    """Raise it in a handler: the job has failed for this reason, and another attempt would be in vain."""

    def __init__(self, reason: str) -> None:
        """Keep the reason, which the job shows as its last error."""
        super().__init__(reason)


class JobCancelled(PgJobsError):
    """Raise it in a handler: it stops here, and its job is `cancelled`, without a further attempt.

    `JobContext.check()` raises it once the cancelling was requested. Without a request it is the handler's
    own decision. The job keeps `reason` as its last error.
    """

    def __init__(self, reason: str = "The job was cancelled while it ran.") -> None:
        """Keep the reason."""
        super().__init__(reason)


class WaitTimeout(PgJobsError, TimeoutError):
    """`Job.wait()` took longer than it may. The job itself goes on."""


class WaitInTransaction(PgJobsError):
    """`Job.wait()` was called in a transaction, which may be what the job waits for."""


class QueueMissing(PgJobsError, LookupError):
    """pgmq has no queue of this name on this database. The server said so: a transaction is over."""

    @classmethod
    def of(cls, queue: str, alias: str) -> Self:
        """Name the queue and the database."""
        return cls(
            f"The queue {queue!r} must exist in pgmq, got none of that name on the database {alias!r}. "
            f"Create it: Queue({queue!r}).create(), or the migration operation CreateQueue({queue!r})."
        )


class PgmqMissing(PgJobsError):
    """pgmq is not installed on this database, or cannot be. The server said so: a transaction is over."""

    @classmethod
    def of(cls, alias: str) -> Self:
        """Name the database, on which there is nothing to install it from."""
        return cls(
            f"pgmq must be installed on the database {alias!r}, got a server without the extension and no "
            "wheel with its SQL. Run pip install 'django-pgjobs[pgmq]', or have the extension added to the "
            "server; then migrate."
        )

    @classmethod
    def when_used(cls, alias: str, said: str) -> Self:
        """Name the database, and what the server said about a statement that needs it."""
        return cls(
            f"pgmq must be installed on the database {alias!r}, got: {said}. Add 'django_pgjobs.pgmq' to "
            "INSTALLED_APPS and migrate; a pgmq that is there is too old, and must be upgraded."
        )


class PrivilegeMissing(PgJobsError):
    """The role of a worker may not do, or not see, what a worker must. The server was asked, and nothing done."""

    @classmethod
    def of(cls, role: str, part: str, alias: str, missing: Sequence[str], *, by_row: bool) -> Self:
        """Name the role, what it is to be, and what it lacks."""
        option = " --row-security" if by_row else ""
        hidden = " Row security hides what no policy shows." if by_row else ""
        return cls(
            f"The role {role!r} must have what a {part} needs on the database {alias!r}, got no "
            f"{', no '.join(missing)}.{hidden} As the owner of the tables, run "
            f"what this prints: manage.py pgjobs grants --{part} {shlex.quote(role)}{option}"
        )

    @classmethod
    def of_consumers(
        cls, role: str, alias: str, missing: Sequence[str], printing: str, *, by_row: bool
    ) -> Self:
        """Name the role, what it lacks to consume messages of pgmq, and the command that prints the grants."""
        hidden = " Row security hides what no policy shows: make one." if by_row else ""
        return cls(
            f"The role {role!r} must have what consumers of pgmq need on the database {alias!r}, got no "
            f"{', no '.join(missing)}.{hidden} As the owner of the queues, run what this prints: {printing}"
        )


class PgJobsWarning(RuntimeWarning):
    """Base of all warnings of this package."""


class ForeignTransaction(PgJobsWarning):
    """The open transaction is on another database than the jobs: the job does not belong to it."""


class Interrupted(BaseException):
    """Raised inside a sync handler at its timeout, wherever it is.

    No `Exception`, so that `except Exception` does not swallow it. Let it pass: the attempt ends with
    `JobTimeout` whatever the handler makes of it.
    """


def _checked(name: str, delay: object) -> float:
    seconds = delays.seconds(delay)
    if seconds is None:
        raise InvalidDelay(
            f"{name}.delay must be {delays.EXPECTED}, got {delay!r:.80}. "
            "Use max(0, ...) where it is computed."
        )
    return seconds
