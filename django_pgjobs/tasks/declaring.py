"""`@task` with this app's options: the task class of the backend.

Invariant: a task that was declared is in the registry, under its module path, with the options that it
was declared with; a copy by `using()` changes how jobs are enqueued, and nothing that workers read.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from django_pgjobs.job_types import refuse_unknown
from django_pgjobs.limits import Limit, Rate
from django_pgjobs.retries import Delays, Errors, RetryPolicy
from django_pgjobs.rules import Recurring
from django_pgjobs.tasks import framework, task_types
from django_pgjobs.uniqueness import Unique

if TYPE_CHECKING:
    from django.db.models import Model

    Task = framework.Task[..., Any]
else:
    Task = framework.Task


# What workers read from the declaration.
_OF_FUNCTIONS = (
    *("takes_context", "retry", "retry_on", "discard_on", "timeout", "concurrency", "rate"),
    *("ordered", "atomic", "aliases", "schedule"),
)
_of_function = attrgetter(*_OF_FUNCTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PgJobsTask(Task):
    """A task with the options of `@job`, which `@task` takes on Django 6.1 and with the backport."""

    # Two tasks are one if the framework says so: the task of a result need not remember these.
    max_attempts: int | None = field(default=None, compare=False)
    retry: RetryPolicy | Delays | None = field(default=None, compare=False)
    retry_on: Errors | None = field(default=None, compare=False)
    discard_on: Errors | None = field(default=None, compare=False)
    timeout: float | datetime.timedelta | None = field(default=None, compare=False)
    unique: Unique | None = field(default=None, compare=False)
    concurrency: Limit | None = field(default=None, compare=False)
    rate: Rate | None = field(default=None, compare=False)
    ordered: bool = field(default=False, compare=False)
    atomic: bool = field(default=False, compare=False)
    aliases: Iterable[str] = field(default=(), compare=False)
    schedule: Recurring | Iterable[Recurring] = field(default=(), compare=False)
    unique_key: str | None = field(
        default=None, compare=False
    )  # this and what follows is for using()
    concurrency_key: str | None = field(default=None, compare=False)
    subject: Model | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Validate the task, and register it where it is declared."""
        Task.__post_init__(self)  # not super(): slots make another class of this one
        task_type = task_types.of(self)
        if task_type.task is not self:
            _check_function(task_type.task, self)
            task_type.check(self)

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime.datetime | datetime.timedelta | None = None,
        backend: str | None = None,
        **changes: Any,
    ) -> PgJobsTask:
        """Return a copy that is enqueued in another way.

        Beside the framework's own: `max_attempts`, `unique`, `unique_key`, `concurrency_key`, `subject`.
        The other options belong to the function, and are declared.

        Raises:
            InvalidOption: an option is unknown, or cannot be changed for one job.
            InvalidTask: the copy is not valid for its backend.

        """
        refuse_unknown("using()", changes, task_types.OF_JOBS)
        given: dict[str, Any] = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        return replace(self, **chosen, **changes)


def task(
    function: Callable[..., Any] | None = None,
    *,
    priority: int = framework.DEFAULT_TASK_PRIORITY,
    queue_name: str = framework.DEFAULT_TASK_QUEUE_NAME,
    backend: str = framework.DEFAULT_TASK_BACKEND_ALIAS,
    takes_context: bool = False,
    **options: Any,
) -> Any:
    """Declare a task as the framework's `@task` does, with this app's options on every Django.

    Django 6.0's own takes none.
    """

    def declare(function: Callable[..., Any]) -> Any:
        task_class: Any = framework.task_backends[backend].task_class
        return task_class(
            func=function,
            priority=priority,
            queue_name=queue_name,
            backend=backend,
            takes_context=takes_context,
            run_after=None,
            **options,
        )

    return declare if function is None else declare(function)


def _check_function(declared: Any, again: PgJobsTask) -> None:
    """Demand that a task declared again have the options that workers read, or raise `InvalidTask`."""
    if not isinstance(declared, PgJobsTask) or _of_function(declared) == _of_function(again):
        return
    for name in _OF_FUNCTIONS:
        first, second = getattr(declared, name), getattr(again, name)
        if first != second:
            raise framework.InvalidTask(
                f"{name} of {again.module_path} must be {first!r:.80}, as it was declared, got {second!r:.80}. "
                "Declare a function once, or wrap it in another one."
            )
