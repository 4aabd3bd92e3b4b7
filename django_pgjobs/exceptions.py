"""Every exception and warning of the package, in one tree.

    PgJobsError
    ├── InvalidOption    (ValueError)     an option of @job or .using() has the wrong type or range
    ├── InvalidPayload   (ValueError)     a payload cannot be stored, or does not fit its handler
    ├── UnknownKind      (LookupError)    no handler is registered for a kind
    ├── DuplicateKind                     two handlers claim one kind
    └── WorkerDead                        this worker's lease was taken from it: it must stop

    PgJobsWarning        (RuntimeWarning)
    └── ForeignTransaction                a job was enqueued outside the transaction that is open

Invariant: whatever the package raises on purpose is a `PgJobsError`, and is raised before any SQL
unless its text says otherwise, so that the caller's transaction stays usable.
"""

from __future__ import annotations


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


class WorkerDead(PgJobsError):
    """The worker's death is recorded: its jobs may run elsewhere, so it must start nothing more."""


class PgJobsWarning(RuntimeWarning):
    """Base of all warnings of this package."""


class ForeignTransaction(PgJobsWarning):
    """The open transaction is on another database than the jobs: the job does not belong to it."""
