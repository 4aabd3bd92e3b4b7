"""`@task` with this app's options: the task class of the backend.

Invariant: a task that was declared is in the registry, under its module path, with the options that it
was declared with; a copy by `using()` changes how jobs are enqueued, and nothing that workers read.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass, field, replace
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


# What workers read from the declaration, and a copy cannot change.
_OF_FUNCTIONS = (
    *("takes_context", "retry", "retry_on", "discard_on", "timeout", "concurrency", "rate"),
    *("ordered", "atomic", "aliases", "schedule"),
)
_OF_THE_FRAMEWORK = ("priority", "queue_name", "run_after", "backend")
_OF_COPIES = ("unique_key", "concurrency_key", "subject")  # which would be those of every job
_DECLARED = (*_OF_FUNCTIONS, "max_attempts", "unique", "priority", "queue_name", "backend")
_as_declared = attrgetter(*_DECLARED)


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
    # These are for using() alone.
    unique_key: str | None = field(default=None, compare=False)
    concurrency_key: str | None = field(default=None, compare=False)
    subject: Model | None = field(default=None, compare=False)
    is_copy: InitVar[bool] = False

    def __post_init__(self, is_copy: bool) -> None:
        """Validate the task, and register it where it is declared."""
        Task.__post_init__(self)  # not super(): slots make another class of this one
        if not is_copy:
            _refuse_those_of_copies(self)
        task_type = task_types.of(self)
        if task_type.task is not self:
            if not is_copy:
                _check_declaration(task_type.task, self)
            task_type.check(self)

    @classmethod
    def _reconstruct(cls, kwargs: dict[str, Any]) -> PgJobsTask:
        """Return the task that was pickled, by the framework's own way: a copy of one that is declared."""
        again = Task._reconstruct.__func__  # type: ignore[attr-defined]  # noqa: SLF001 -- it has no other
        task: PgJobsTask = again(cls, {**kwargs, "is_copy": True})
        return task

    def get_backend(self) -> Any:
        """Return its backend; for the results of one that the settings have lost, what still finds them."""
        try:
            return Task.get_backend(self)
        except framework.InvalidTaskBackend:
            from django_pgjobs.tasks.backend import LostBackend  # noqa: PLC0415 -- it imports this

            return LostBackend(self.backend, {})

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
        known = (*_OF_THE_FRAMEWORK, *task_types.OF_JOBS)
        refuse_unknown("using()", changes, known, dict.fromkeys(_OF_FUNCTIONS, "@task"))
        given: dict[str, Any] = {
            "priority": priority,
            "queue_name": queue_name,
            "run_after": run_after,
            "backend": backend,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        return replace(self, **chosen, **changes, is_copy=True)


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

    Raises:
        InvalidTask: an option has the wrong type or is out of range, or the task cannot be run.
        TypeError: an option is unknown.

    """
    if "run_after" in options:
        raise TypeError(
            f"run_after must be given to using(), got {options['run_after']!r:.80} in @task. "
            "Write .using(run_after=...) where you enqueue."
        )

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


def _refuse_those_of_copies(declared: PgJobsTask) -> None:
    """Demand that a declaration have no option that is for `using()` alone, or raise `InvalidTask`."""
    for name in _OF_COPIES:
        value = getattr(declared, name)
        if value is not None:
            raise framework.InvalidTask(
                f"{name} of {declared.module_path} must be given to using(), got {value!r:.80} in its "
                f"declaration. Write .using({name}=...) where you enqueue."
            )


def _check_declaration(declared: Any, again: PgJobsTask) -> None:
    """Demand that a task declared again have the same options, or raise `InvalidTask`."""
    if not isinstance(declared, PgJobsTask) or _as_declared(declared) == _as_declared(again):
        return
    for name in _DECLARED:
        first, second = getattr(declared, name), getattr(again, name)
        if first != second:
            raise framework.InvalidTask(
                f"{name} of {again.module_path} must be {first!r:.80}, as it was declared, got {second!r:.80}. "
                "Declare a function once, or wrap it in another one; for some of its jobs use using()."
            )
