"""Which jobs a list looks at: all that an index gives in order, or the first of them.

Invariant: a page reads at most `WINDOW` rows of an index beside those that it shows, however many jobs there are.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from django.core.paginator import Paginator
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.functional import cached_property

from django_pgjobs.lifecycle import FINAL, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django_pgjobs.models import JobQuerySet

    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator  # Django's own is not generic when it runs

WINDOW = 10_000  # rows that a filter without an index looks through, and that a list counts

# The order of the index that finds the jobs of this status; all jobs come by their primary key.
_ORDERS: dict[str, tuple[str, ...]] = {
    Status.PENDING: ("queue", "-priority", "run_at", "id"),
    Status.RUNNING: ("locked_at", "id"),
    **dict.fromkeys(FINAL, ("-finished_at", "-id")),
}
_NEWEST = ("-id",)

# Pending jobs with a key have an index of their own: the first of both are listed together.
_KEYED = Q(concurrency_key__isnull=False)
_KEYS = ("queue", "concurrency_key", "-priority", "run_at", "id")

PERIODS = {
    "hour": datetime.timedelta(hours=1),
    "day": datetime.timedelta(days=1),
    "week": datetime.timedelta(days=7),
}


class Choice:
    """What the filters of a list chose."""

    def __init__(self, chosen: Mapping[str, str | None]) -> None:
        """Take the values of `status`, `queue`, `kind` and `finished`; none is no restriction."""
        self.status = chosen.get("status")
        self._queue = chosen.get("queue")
        self._kind = chosen.get("kind")
        self._finished = PERIODS.get(chosen.get("finished") or "")

    @property
    def order(self) -> tuple[str, ...]:
        """The order in which an index yields these jobs."""
        return _ORDERS.get(self.status or "", _NEWEST)

    def all(self, jobs: JobQuerySet) -> JobQuerySet:
        """Return all jobs that were chosen: for an act, which may take its time."""
        return self._rest(self._indexed(jobs))

    def listed(self, jobs: JobQuerySet) -> JobQuerySet:
        """Return those of them that a list shows, in order."""
        every: Any = jobs.model._base_manager.using(jobs.db)  # noqa: SLF001 -- all rows
        first = self._indexed(every)
        indexed = self._indexed(jobs)
        if self.status == Status.PENDING and first.filter(_KEYED).exists():
            free = first.exclude(_KEYED).order_by(*self.order).values("pk")[:WINDOW]
            keyed = first.filter(_KEYED).order_by(*_KEYS).values("pk")[:WINDOW]
            indexed = jobs.filter(pk__in=free.union(keyed, all=True))
        elif self.is_windowed:
            ids = first.order_by(*self.order).values("pk")[:WINDOW]
            indexed = jobs.filter(pk__in=ids)
        elif self.status == Status.PENDING:
            indexed = indexed.exclude(_KEYED)
        return self._rest(indexed).order_by(*self.order)

    @property
    def is_windowed(self) -> bool:
        """Whether there is a restriction that no index serves."""
        queue_by_index = self.status == Status.PENDING
        finished_by_index = self.status in FINAL
        return bool(
            self._kind
            or (self._queue and not queue_by_index)
            or (self._finished and not finished_by_index)
        )

    def _indexed(self, jobs: JobQuerySet) -> JobQuerySet:
        found = jobs.filter(status=self.status) if self.status else jobs
        if self._queue and self.status == Status.PENDING:
            found = found.filter(queue=self._queue)
        if self._finished and self.status in FINAL:
            found = found.filter(finished_at__gt=Now() - self._finished)
        return found

    def _rest(self, jobs: JobQuerySet) -> JobQuerySet:
        conditions = Q()
        if self._kind:
            conditions &= Q(kind=self._kind)
        if self._queue:
            conditions &= Q(queue=self._queue)
        if self._finished:
            conditions &= Q(finished_at__gt=Now() - self._finished)
        return jobs.filter(conditions)


class BoundedPaginator(_Paginator):
    """Counts no further than `WINDOW`: beyond, nobody turns pages."""

    @cached_property
    def count(self) -> int:
        """How many jobs there are, and one more than `WINDOW` where there are more."""
        jobs: Any = self.object_list
        count: int = jobs[: WINDOW + 1].count()
        return count
