"""Claims with limits, as a worker makes them, one look at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_pgjobs import job
from django_pgjobs.claims import Claim, Served
from django_pgjobs.limited_claims import LimitedClaimer
from django_pgjobs.sessions import DjangoExecutor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django_pgjobs.job_types import JobType
    from django_pgjobs.sessions import Executor

WORKER = 1_000_000_007  # no worker that a test starts gets so far


def declare(kind: str = "call", **options: Any) -> JobType[..., Any]:
    """A kind with these limits; its handler takes a customer."""

    def handler(customer: object = None, **_more: object) -> None:
        """Do nothing."""

    return job(kind=kind, **options)(handler)


def claimer(
    worker: int = WORKER,
    queues: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    **options: Any,
) -> LimitedClaimer:
    return LimitedClaimer(worker, Served(queues, exclude), **options)


def taken(
    limit: int = 100, *, by: LimitedClaimer | None = None, on: Executor | None = None
) -> list[Claim]:
    """What one look of a new worker claims, or one of this worker."""
    return (by or claimer()).claim(on or DjangoExecutor("default"), limit)
