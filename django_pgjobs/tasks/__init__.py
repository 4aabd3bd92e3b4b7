"""The backend for Django's tasks: what `@task` declares runs as jobs of this app.

Importing this package imports neither models nor the framework: names are found when they are first
used, since every `tasks` module of the installed apps is imported at start, and this is one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django_pgjobs.tasks.backend import PgJobsBackend
    from django_pgjobs.tasks.contexts import PgJobsTaskContext
    from django_pgjobs.tasks.declaring import PgJobsTask, task

__all__ = ["PgJobsBackend", "PgJobsTask", "PgJobsTaskContext", "task"]

_HOMES = {
    "PgJobsBackend": "backend",
    "PgJobsTask": "declaring",
    "PgJobsTaskContext": "contexts",
    "task": "declaring",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
