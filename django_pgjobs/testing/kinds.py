"""Say which kinds a test means: by name, by `JobType`, or by a task of django.tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from django_pgjobs import registry
from django_pgjobs.job_types import JobType


@runtime_checkable
class Task(Protocol):
    """A task of django.tasks, which is not imported here: its path is the kind of its jobs."""

    @property
    def module_path(self) -> str:
        """Where the function is."""


Kind = str | JobType[..., Any] | Task


def names_of(kind: Kind) -> list[str]:
    """Return the kinds that rows of it may have: its own name, and its aliases.

    Raises:
        TypeError: it is none of the three.

    """
    found = registry.find(kind) if isinstance(kind, str) else kind
    if isinstance(found, JobType):
        return [found.kind, *found.aliases]
    if isinstance(kind, str):
        return [kind]
    if isinstance(kind, Task):
        return [kind.module_path]
    raise TypeError(
        f"kind must be a name, a JobType or a task, got {kind!r}. Pass what you enqueue."
    )


def names_of_all(kinds: Kind | Iterable[Kind]) -> list[str]:
    """Return the same of several, or of one."""
    if isinstance(kinds, str | JobType | Task):
        kinds = [kinds]
    return [name for kind in kinds for name in names_of(kind)]
