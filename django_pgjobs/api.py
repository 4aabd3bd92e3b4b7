"""The caller's verbs by name: enqueue a job by its kind.

Invariant: nothing here that `JobType` cannot do; a kind is only another way to find it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_pgjobs.registry import get_job

if TYPE_CHECKING:
    from django_pgjobs.models import Job

__all__ = ["aenqueue", "enqueue", "get_job"]


def enqueue(kind: str, /, **payload: Any) -> Job:
    """Insert one pending job of `kind` in the current transaction and return it.

    See `JobType.enqueue()`; for other options, `get_job(kind).using(...).enqueue(...)`.

    Raises:
        UnknownKind: no handler is registered for the kind.
        InvalidPayload: the payload does not fit the handler or cannot be stored.

    """
    return get_job(kind).enqueue(**payload)


async def aenqueue(kind: str, /, **payload: Any) -> Job:
    """`enqueue()` for async code."""
    return await get_job(kind).aenqueue(**payload)
