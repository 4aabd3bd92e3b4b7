"""The tasks that wait in the table of django-tasks-db, and how they become jobs.

Each is enqueued as its own code would do it now, so what a new task would be refused for, an old one is
refused for too, and stays where it is.

Invariant: a job is inserted and its row deleted in one transaction, under the lock of the row, which old
workers pass over: a task waits in one of the two tables, never in both and never in none.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.apps import apps
from django.db import models, router, transaction

from django_pgjobs.exceptions import PgJobsError
from django_pgjobs.sessions import CONNECTION_ERRORS

APP = "django_tasks_db"
_LABEL = "django_tasks_database"  # of that app, and of its forerunner in django-tasks
_ORDER = ("-priority", "run_after", "enqueued_at", "pk")  # in which its workers take them
_BATCH = 1_000  # rows of one transaction
_AT_ONCE = 9999  # the year that it stores where there is no run_after
# SUCCESSFUL was COMPLETE and SUCCEEDED before. READY was NEW: who has that has not migrated its table.
_KNOWN = ("READY", "RUNNING", "FAILED", "SUCCESSFUL", "SUCCEEDED", "COMPLETE")


class NotCarried(PgJobsError):
    """Why a row cannot become a job."""


class Left(NamedTuple):
    """Rows of one task that stay where they are, for one reason."""

    task: str
    reason: str
    rows: int
    example: str  # the id of one


class Carried(NamedTuple):
    """What became of the rows."""

    ids: list[tuple[str, str]]  # of the old row and of its job
    left: list[Left]
    held: int  # that old workers took meanwhile, or somebody has locked
    unknown: dict[str, int]  # how many rows have a status that may mean that they wait

    @property
    def jobs(self) -> int:
        """How many jobs they became: those of a unique task may share one."""
        return len({job for _, job in self.ids})


def database() -> str | None:
    """Return the database of the old rows, or None where their app is not installed."""
    try:
        return router.db_for_write(_model())
    except LookupError:
        return None


def carry_over(alias: str, backend: str | None = None, *, dry_run: bool = False) -> Carried:
    """Make jobs of the rows that wait, as tasks of `backend` or else of the one that they name.

    A dry run does it all, and rolls it back. It may be stopped, and run again, at any time.

    Raises:
        NotCarried: `backend` is none that could take a task.
        django.db.Error: the connection is lost. Each batch before has been carried over.

    """
    if backend is not None:
        _check_backend(backend)
    every = _model()._base_manager.using(alias)  # noqa: SLF001 -- all rows
    waiting = every.filter(status="READY")
    ids = iter(list(waiting.order_by(*_ORDER).values_list("pk", flat=True)))
    carried: list[tuple[str, str]] = []
    left: dict[tuple[str, str], Left] = {}
    held = 0
    while batch := list(itertools.islice(ids, _BATCH)):
        with transaction.atomic(using=alias):
            rows = list(_locked(waiting, batch))
            held += len(batch) - len(rows)
            done = [(row, found) for row in rows if (found := _carry(row, backend, alias, left))]
            waiting.filter(pk__in=[row.pk for row, _ in done]).delete()
            transaction.set_rollback(dry_run, using=alias)
        carried += [(str(row.pk), job) for row, job in done]
    unknown = every.exclude(status__in=_KNOWN).values_list("status").order_by("status")
    rows_of = dict(unknown.annotate(models.Count("pk")))
    return Carried(carried, list(left.values()), held, rows_of)


def _model() -> type[models.Model]:
    return apps.get_model(_LABEL, "DBTaskResult")


def _locked(waiting: models.QuerySet[Any], batch: Sequence[object]) -> models.QuerySet[Any]:
    # Skipped, not waited for: an old worker holds a row while it marks it as running.
    return waiting.filter(pk__in=batch).order_by(*_ORDER).select_for_update(skip_locked=True)


def _carry(
    row: Any, backend: str | None, alias: str, left: dict[tuple[str, str], Left]
) -> str | None:
    """Enqueue the task of a row and return the id of its job; note the reason where that fails."""
    try:
        with transaction.atomic(using=alias):
            return _enqueue(row, backend or row.backend_name)
    except CONNECTION_ERRORS:
        raise
    except Exception as error:  # noqa: BLE001 -- its code, its settings, a receiver of signals
        reason = str(error) or type(error).__name__
        known = left.get((row.task_path, reason))
        rows, example = (known.rows, known.example) if known else (0, str(row.pk))
        left[row.task_path, reason] = Left(row.task_path, reason, rows + 1, example)
        return None


def _enqueue(row: Any, backend: str) -> str:
    task = _task(row.task_path)
    _check_backend(backend)
    run_after = row.run_after if row.run_after and row.run_after.year < _AT_ONCE else None
    changes = {"priority": row.priority, "queue_name": row.queue_name, "run_after": run_after}
    args, kwargs = _arguments(row.args_kwargs)
    return str(task.using(**changes, backend=backend).enqueue(*args, **kwargs).id)


def _task(path: str) -> Any:
    from django_pgjobs.tasks import finding  # noqa: PLC0415 -- the framework may be missing

    found = finding.find(path)
    if found is None:
        raise NotCarried(
            f"task_path must be that of a task in an installed app, got {path!r:.200}. Restore it, or "
            "delete these rows."
        )
    return found.task


def _arguments(given: Any) -> tuple[list[Any], dict[str, Any]]:
    match given:
        case {"args": list(args), "kwargs": dict(kwargs)}:
            return args, kwargs
    raise NotCarried(
        "args_kwargs must be an object with the list 'args' and the object 'kwargs', got something else. "
        "Correct it, or delete these rows."
    )


def _check_backend(backend: str) -> None:
    from django_pgjobs.tasks import PgJobsBackend, framework  # noqa: PLC0415 -- likewise

    if backend not in list(framework.task_backends):
        raise NotCarried(
            f"The backend of a task must be a key of TASKS, got {backend!r:.200}. Add it, or name another "
            "one with --backend."
        )
    given = framework.task_backends[backend]
    if not isinstance(given, PgJobsBackend):
        raise NotCarried(
            f"TASKS[{backend!r}] must be django_pgjobs.tasks.PgJobsBackend, got "
            f"{type(given).__qualname__}. Change it, or name another one with --backend."
        )
