"""A job queue in the PostgreSQL that a Django project already has.

Public names are imported when they are first used: the models need Django's apps to be loaded,
while `from django_pgjobs import job` must work from any module of a project.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_pgjobs.api import aenqueue, enqueue, get_job
    from django_pgjobs.exceptions import (
        DuplicateKind,
        ForeignTransaction,
        InvalidOption,
        InvalidPayload,
        PgJobsError,
        PgJobsWarning,
        UnknownKind,
    )
    from django_pgjobs.limits import Limit, Rate
    from django_pgjobs.models import Job
    from django_pgjobs.registry import JobType, job

__version__ = "0.1.0.dev0"

__all__ = [
    "DuplicateKind",
    "ForeignTransaction",
    "InvalidOption",
    "InvalidPayload",
    "Job",
    "JobType",
    "Limit",
    "PgJobsError",
    "PgJobsWarning",
    "Rate",
    "UnknownKind",
    "aenqueue",
    "enqueue",
    "get_job",
    "job",
]

_HOMES = {
    "Job": "models",
    "JobType": "registry",
    "Limit": "limits",
    "Rate": "limits",
    "aenqueue": "api",
    "enqueue": "api",
    "get_job": "api",
    "job": "registry",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'exceptions')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
