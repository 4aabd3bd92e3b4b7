"""A job queue in the PostgreSQL that a Django project already has.

Public names are imported when they are first used: the models need Django's apps to be loaded,
while `from django_pgjobs import job` must work from any module of a project.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_pgjobs.api import aenqueue, enqueue, get_job
    from django_pgjobs.context import JobContext
    from django_pgjobs.exceptions import (
        Discard,
        DuplicateJob,
        DuplicateKind,
        ForeignTransaction,
        InvalidOption,
        InvalidPayload,
        JobCancelled,
        PgJobsError,
        PgJobsWarning,
        Retry,
        Snooze,
        UnknownKind,
        WaitInTransaction,
        WaitTimeout,
    )
    from django_pgjobs.job_types import JobType
    from django_pgjobs.limits import Limit, Rate
    from django_pgjobs.models import Job
    from django_pgjobs.queues import pause, resume
    from django_pgjobs.registry import job
    from django_pgjobs.retries import Exponential, Fixed, Linear
    from django_pgjobs.rules import cron, every
    from django_pgjobs.uniqueness import Unique

__version__ = "0.1.0.dev0"

__all__ = [
    "Discard",
    "DuplicateJob",
    "DuplicateKind",
    "Exponential",
    "Fixed",
    "ForeignTransaction",
    "InvalidOption",
    "InvalidPayload",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobType",
    "Limit",
    "Linear",
    "PgJobsError",
    "PgJobsWarning",
    "Rate",
    "Retry",
    "Snooze",
    "Unique",
    "UnknownKind",
    "WaitInTransaction",
    "WaitTimeout",
    "aenqueue",
    "cron",
    "enqueue",
    "every",
    "get_job",
    "job",
    "pause",
    "resume",
]

_HOMES = {
    "Exponential": "retries",
    "Fixed": "retries",
    "Job": "models",
    "JobContext": "context",
    "JobType": "job_types",
    "Linear": "retries",
    "Unique": "uniqueness",
    "Limit": "limits",
    "Rate": "limits",
    "aenqueue": "api",
    "cron": "rules",
    "enqueue": "api",
    "every": "rules",
    "get_job": "api",
    "job": "registry",
    "pause": "queues",
    "resume": "queues",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'exceptions')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
