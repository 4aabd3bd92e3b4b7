"""What a task is told of its own attempt, where it takes a context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_pgjobs.context import NO_ROW, JobContext
from django_pgjobs.tasks import framework
from django_pgjobs.tasks.framework import TaskResultDoesNotExist

if TYPE_CHECKING:
    from django_pgjobs.tasks.task_types import TaskType

    TaskContext = framework.TaskContext[..., Any]
else:
    TaskContext = framework.TaskContext


@dataclass(frozen=True, slots=True, kw_only=True)
class PgJobsTaskContext(TaskContext):  # type: ignore[misc]  # the stubs do not know it as frozen
    """The framework's context, and that of the job: for progress, and for stopping when asked to."""

    job_context: JobContext


def of(task_type: TaskType, context: JobContext) -> PgJobsTaskContext:
    """Return the context of this attempt; it reads the row, where there is one."""
    from django_pgjobs.tasks import results  # noqa: PLC0415 -- no models before the apps are loaded

    job = context.job if context.job_id == NO_ROW else results.row(context.job_id)
    if job is None:
        raise TaskResultDoesNotExist(context.job_id)
    return PgJobsTaskContext(task_result=results.of(task_type, job), job_context=context)
