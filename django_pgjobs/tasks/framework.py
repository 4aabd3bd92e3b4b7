"""The framework that this Django has: `django.tasks`, or the backport `django_tasks` before 6.0.

Invariant: nothing else in this package imports from either.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import django

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import checks, signals, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import (
        DEFAULT_TASK_BACKEND_ALIAS,
        DEFAULT_TASK_PRIORITY,
        DEFAULT_TASK_QUEUE_NAME,
        Task,
        TaskContext,
        TaskError,
        TaskResult,
        TaskResultStatus,
    )
    from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
    from django.utils.json import normalize_json
else:
    # Its checks and signals register themselves even where its app is not installed.
    from django_tasks import checks, signals, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import (
        DEFAULT_TASK_BACKEND_ALIAS,
        DEFAULT_TASK_PRIORITY,
        DEFAULT_TASK_QUEUE_NAME,
        Task,
        TaskContext,
        TaskError,
        TaskResult,
        TaskResultStatus,
    )
    from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.utils import normalize_json

__all__ = [
    "DEFAULT_TASK_BACKEND_ALIAS",
    "DEFAULT_TASK_PRIORITY",
    "DEFAULT_TASK_QUEUE_NAME",
    "BaseTaskBackend",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "checks",
    "normalize_json",
    "set_attributes",
    "signals",
    "task_backends",
    "unvalidated",
]


def unvalidated(task: Any, **values: Any) -> Any:
    """Return a copy of a task with these attributes that no backend has validated."""
    copy = object.__new__(type(task))
    kept = {field.name: getattr(task, field.name) for field in fields(task)}
    set_attributes(copy, **(kept | values))
    return copy


def set_attributes(instance: Any, **values: Any) -> None:
    """Set attributes of a dataclass of the framework's, which is frozen."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)
