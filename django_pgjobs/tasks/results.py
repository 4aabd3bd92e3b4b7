"""The result of a task, read from the row of its job.

Invariant: a result says nothing that the row does not, and nothing that it says can be changed by what
the settings or the code have become since: the task is the one that was enqueued.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.db import router

from django_pgjobs import payloads
from django_pgjobs.exceptions import InvalidPayload, WorkerLost
from django_pgjobs.models import Job
from django_pgjobs.tasks.framework import (
    TaskError,
    TaskResult,
    TaskResultStatus,
    set_attributes,
    unvalidated,
)

if TYPE_CHECKING:
    from django_pgjobs.tasks.task_types import TaskType

_STATUS = {
    "pending": TaskResultStatus.READY,
    "blocked": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "done": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}
_UNKNOWN = "unknown"


_LOST = f"{WorkerLost.__module__}.{WorkerLost.__qualname__}"  # the reaper notes its name alone


def of(task_type: TaskType, job: Job) -> TaskResult[..., Any]:
    """Return the result of a task as its job's row has it."""
    note = noted(job)
    backend = note.get("backend", task_type.task.backend)
    payload = value(job.payload)
    args, kwargs = task_type.arguments(
        payload if isinstance(payload, dict) else job.payload, note.get("args", 0)
    )
    result: TaskResult[..., Any] = TaskResult(
        task=_as_enqueued(
            task_type.task,
            priority=job.priority,
            queue_name=job.queue,
            backend=backend,
            run_after=_run_after(note),
        ),
        id=str(job.pk),
        status=_STATUS[job.status],
        enqueued_at=job.created_at,
        started_at=_started_at(job),
        finished_at=job.finished_at,
        last_attempted_at=job.attempted_at,
        args=args,
        kwargs=kwargs,
        backend=backend,
        errors=[error(entry) for entry in _entries(job)],
        worker_ids=_worker_ids(job),
    )
    if job.status == "done":
        set_attributes(result, _return_value=value(job.result))
    return result


def new(
    task: Any, job: Job, backend: str, args: list[Any], kwargs: dict[str, Any]
) -> TaskResult[..., Any]:
    """Return the result of a task that has just been enqueued."""
    return TaskResult(
        task=task,
        id=str(job.pk),
        status=TaskResultStatus.READY,
        enqueued_at=job.created_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=args,
        kwargs=kwargs,
        backend=backend,
        errors=[],
        worker_ids=[],
    )


def database() -> str:
    """Return the alias of the jobs' database."""
    return router.db_for_write(Job)


def row(job_id: int) -> Job | None:
    """Return the job, from where it was written: a replica may not have it yet."""
    rows = Job._base_manager.using(database()).defer(*Job.added)  # noqa: SLF001 -- all rows
    return rows.filter(pk=job_id).first()


def error(entry: dict[str, Any]) -> TaskError:
    """Return what one failed attempt has left in the row."""
    path = str(entry.get("error", ""))
    return TaskError(
        exception_class_path=_LOST if path == WorkerLost.__name__ else path,
        traceback=str(entry.get("traceback") or entry.get("message", "")),
    )


def noted(job: Job) -> dict[str, Any]:
    """Return what `meta` says of the task, as `enqueue()` writes it; what SQL has put there may be anything."""
    note = job.meta.get("task")
    wanted = {"backend": str, "args": int, "run_after": str | int | float}
    given = note.items() if isinstance(note, dict) else ()
    return {name: value for name, value in given if isinstance(value, wanted.get(name, ()))}


def _as_enqueued(task: Any, **values: Any) -> Any:
    """Return the task with these attributes: it was valid, by the settings of that time."""
    if all(getattr(task, name) == value for name, value in values.items()):
        return task
    return unvalidated(task, **values)


def value(stored: Any) -> Any:
    """Return what was stored; as it is stored, where it cannot be read."""
    with suppress(InvalidPayload):
        return payloads.restored(stored)
    return stored


def _run_after(note: dict[str, Any]) -> datetime.datetime | datetime.timedelta | None:
    moment = note.get("run_after")
    with suppress(ValueError, OverflowError):
        if isinstance(moment, str):
            return datetime.datetime.fromisoformat(moment)
        return None if moment is None else datetime.timedelta(seconds=moment)
    return None


def _entries(job: Job) -> Iterator[dict[str, Any]]:
    return (entry for entry in job.errors if isinstance(entry, dict))


def _started_at(job: Job) -> datetime.datetime | None:
    """Return when the first attempt began, or the first that the row still tells of."""
    for entry in _entries(job):
        with suppress(KeyError, TypeError, ValueError):
            return datetime.datetime.fromisoformat(entry["started_at"])
    return job.attempted_at


def _worker_ids(job: Job) -> list[str]:
    """Return the id of each attempt's worker; old entries of errors are dropped, and their workers."""
    workers = [_UNKNOWN] * job.attempts
    last = job.locked_by or job.meta.get("worker")
    if workers and job.status in {"running", "done"} and last is not None:
        workers[-1] = str(last)
    for entry in _entries(job):
        attempt = entry.get("attempt")
        if isinstance(attempt, int) and 0 < attempt <= len(workers):
            workers[attempt - 1] = str(entry.get("worker")).rpartition("#")[2]
    return workers
