"""Every exception and warning of the package, in one tree.

    PgJobsError
    ├── InvalidOption    (ValueError)     an option of @job or .using() has the wrong type or range
    ├── InvalidPayload   (ValueError)     a payload cannot be stored, or does not fit its handler
    ├── UnknownKind      (LookupError)    no handler is registered for a kind
    ├── DuplicateKind                     two handlers claim one kind
    ├── DuplicateJob                      another job holds the unique key of a new one
    └── JobTimeout                        an attempt ran longer than its kind's timeout

    PgJobsWarning        (RuntimeWarning)
    └── ForeignTransaction                a job was enqueued outside the transaction that is open

    Interrupted          (BaseException)  raised inside a handler whose time is over

Invariant: whatever the package raises on purpose is a `PgJobsError`, and is raised before any SQL
unless its text says otherwise, so that the caller's transaction stays usable.
"""

from __future__ import annotations

from typing import Self


class PgJobsError(Exception):
    """Base of all errors that this package raises on purpose."""


class InvalidOption(PgJobsError, ValueError):
    """An option of `@job`, `.using()` or a command has the wrong type or is out of range."""


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
        """Name the timeout."""
        shown = "the timeout of its kind" if seconds is None else f"its timeout of {seconds:g} s"
        return cls(f"The handler ran longer than {shown}.")


class PgJobsWarning(RuntimeWarning):
    """Base of all warnings of this package."""


class ForeignTransaction(PgJobsWarning):
    """The open transaction is on another database than the jobs: the job does not belong to it."""


class Interrupted(BaseException):
    """Raised inside a sync handler at its timeout, wherever it is.

    No `Exception`, so that `except Exception` does not swallow it. Let it pass: the attempt ends with
    `JobTimeout` whatever the handler makes of it.
    """
