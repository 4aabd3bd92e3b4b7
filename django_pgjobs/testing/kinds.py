"""Say which kinds a test means: by name, by `JobType`, or by a task of django.tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from django_pgjobs import registry
from django_pgjobs.job_types import JobType
from django_pgjobs.models import JobQuerySet


@runtime_checkable
class Task(Protocol):
    """A task of django.tasks, which is not imported here: its path is the kind of its jobs."""

    @property
    def module_path(self) -> str:
        """Where the function is."""


@runtime_checkable
class Result(Protocol):
    """What a task's own `enqueue()` returns: its id is that of the job."""

    id: str
    task: Any


Kind = str | JobType[..., Any] | Task


def names_of(kind: Kind) -> list[str]:
    """Return the kinds that rows of it may have: its own name, and its aliases.

    Raises:
        TypeError: it is none of the three.

    """
    found = type_of(kind)
    if found is not None:
        return [found.kind, *found.aliases]
    return [kind if isinstance(kind, str) else kind.module_path]  # type: ignore[union-attr]  # a task


def type_of(kind: Kind) -> JobType[..., Any] | None:
    """Return the `JobType` of a kind, or None where there is none of that name.

    Raises:
        TypeError: it is none of the three.

    """
    if isinstance(kind, JobType):
        return kind
    if not isinstance(kind, str | Task):
        raise TypeError(
            f"kind must be a name, a JobType or a task, got {kind!r}. Pass what you enqueue."
        )
    return registry.find(kind if isinstance(kind, str) else kind.module_path)


def names_of_all(kinds: Iterable[Kind]) -> list[str]:
    """Return the same of several."""
    return [name for kind in kinds for name in names_of(kind)]


def refuse_misspelt(kinds: Iterable[Kind], jobs: JobQuerySet) -> None:
    """Raise `UnknownKind` for a name that neither a handler nor one of `jobs` has."""
    for kind in kinds:
        names = names_of(kind)
        known = not isinstance(kind, str) or registry.find(kind) is not None
        if not known and not jobs.filter(kind__in=names).exists():
            registry.get_job(names[0])


def listed(chosen: Any) -> list[Any]:
    """Return a list of several, or of one."""
    several = isinstance(chosen, Iterable) and not isinstance(chosen, str)
    return list(chosen) if several else [chosen]
