"""Which jobs a page looks at: all that an index gives in order, or the first of them.

Invariant: a page reads at most `WINDOW` rows of an index beside those that it shows, however many jobs there
are; of pending jobs as many of each of two indexes, for those with a concurrency key have their own.
"""

from __future__ import annotations

import datetime
from contextlib import contextmanager
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from django.core.paginator import Paginator
from django.db import connections, transaction
from django.db.models import Case, Q, When
from django.db.models.functions import Now
from django.utils.functional import cached_property

from django_pgjobs import inspection, lifecycle
from django_pgjobs.lifecycle import FINAL, Status
from django_pgjobs.sessions import execute_on_django

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from django_pgjobs.models import JobQuerySet

    _Paginator = Paginator[Any]
else:
    _Paginator = Paginator  # Django's own is not generic when it runs

WINDOW = 10_000  # rows that a filter without an index looks through, and that a list counts

# The order of the index that finds the jobs of this status; all jobs come by their primary key. Jobs that
# ended at one moment, a million in one statement perhaps, come as they lie there: nothing is sorted.
_ORDERS: dict[str, tuple[str, ...]] = {
    Status.PENDING: ("queue", "-priority", "run_at", "id"),
    Status.RUNNING: ("locked_at", "id"),
    **dict.fromkeys(FINAL, ("-finished_at",)),
}
_NEWEST = ("-id",)

# Pending jobs with a key have an index of their own: the first of both are listed together. It has
# no order of priorities across keys: of more than `WINDOW`, the first are found lane by lane, as long as
# there are few keys with few priorities. Of more lanes the highest priority may not be listed.
_KEYED = Q(concurrency_key__isnull=False)
_KEYS = ("queue", "concurrency_key", "-priority", "run_at", "id")
LANES = 2_000

PERIODS = {
    "hour": datetime.timedelta(hours=1),
    "day": datetime.timedelta(days=1),
    "week": datetime.timedelta(days=7),
}

_BY_INDEX = ", ".join(
    f"set_config('{name}', 'off', true)" for name in ("enable_seqscan", "enable_bitmapscan", "jit")
)


@contextmanager
def by_index(alias: str) -> Iterator[None]:
    """Have the server read by indexes in here, whatever its statistics say.

    Where they are missing or of another time, it takes 10,000 rows for all that there are, and reads
    and sorts every one that matches. One transaction: the settings end with it.
    """
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute(f"select {_BY_INDEX}")
        yield


class Choice:
    """What the filters and the search of a list chose."""

    def __init__(self, chosen: Mapping[str, str | None], searched: Mapping[str, Any]) -> None:
        """Take the values of `status`, `queue`, `kind` and `finished`, and what `search()` made out."""
        status = chosen.get("status") or ""
        self._queue = chosen.get("queue") or None
        self.leaves_keyed = False  # whether a job of a higher priority may be missing in the list
        found: list[tuple[Q, bool]] = []  # conditions, and whether an index serves them
        if status:
            found.append((Q(status=status), True))
        if status in FINAL:
            # True of every such row; without it the planner does not see that the index serves.
            found.append((Q(finished_at__isnull=False), True))
        if queue := chosen.get("queue"):
            found.append((Q(queue=queue), status == Status.PENDING))
        if period := PERIODS.get(chosen.get("finished") or ""):
            found.append((Q(finished_at__gt=Now() - period), status in FINAL))
        if kind := chosen.get("kind"):
            found.append((Q(kind=kind), False))
        self._is_key = bool(searched) and "kind" not in searched
        if self._is_key:  # an id or a subject has an index, and its jobs are few
            found = [(condition, False) for condition, _ in found]
        found.append((Q(**searched), self._is_key))
        self._served = reduce(and_, (each for each, is_served in found if is_served), Q())
        self._others = reduce(and_, (each for each, is_served in found if not is_served), Q())
        self._order = _ORDERS.get(status, _NEWEST)
        self._is_pending = status == Status.PENDING and not self._is_key

    @property
    def is_windowed(self) -> bool:
        """Whether there is a restriction that no index serves."""
        return bool(self._others) and not self._is_key

    def all(self, jobs: JobQuerySet) -> JobQuerySet:
        """Return all jobs that were chosen: for an act, which may take its time."""
        return jobs.filter(self._served, self._others).order_by(*self._order)

    def listed(self, jobs: JobQuerySet) -> JobQuerySet:
        """Return those of them that a list shows, one more than `WINDOW` where there are more."""
        served, keyed = self._found(jobs), self._keyed(jobs)
        many_keyed = keyed.order_by(*_KEYS)[: WINDOW + 1].count()
        if not (many_keyed or self.is_windowed or self._is_key):
            return self.all(jobs).exclude(_KEYED) if self._is_pending else self.all(jobs)
        # Found by a key they have no order yet: asked for one, the server walks along another index.
        order = () if self._is_key else self._order
        if self._is_pending:
            served = served.exclude(_KEYED)
        most = WINDOW if self.is_windowed else WINDOW + 1
        first = served.order_by(*order)[:most]
        if many_keyed:
            of_keys = self._first(keyed, most, are_many=many_keyed > WINDOW)
            first = first.union(of_keys, all=True)
        # By a CASE, which no index can serve: among these few the server must not prefer another one.
        chosen = Case(When(self._others, then=True), default=False) if self._others else Q()
        return jobs.filter(lifecycle.among(first), chosen).order_by(*self._order)

    def _first(self, keyed: Any, most: int, *, are_many: bool) -> Any:
        """Return the first jobs with a key; of many by priority, where there are few lanes."""
        if are_many:
            params = {"queue": self._queue, "lanes": LANES, "most": most}
            [(ids, are_all_lanes)] = execute_on_django(keyed.db)(
                inspection.KEYED_BY_PRIORITY, params
            )
            self.leaves_keyed = not are_all_lanes
            if are_all_lanes:
                return keyed.filter(lifecycle.one_of(ids))
        return keyed.order_by(*_KEYS)[:most]

    def _found(self, jobs: JobQuerySet) -> Any:
        """Return what an index finds, without `jobs`' own filters."""
        return jobs.model._base_manager.using(jobs.db).filter(self._served)  # noqa: SLF001 -- as Django names it

    def _keyed(self, jobs: JobQuerySet) -> Any:
        found = self._found(jobs)
        return found.filter(_KEYED) if self._is_pending else found.none()


class BoundedPaginator(_Paginator):
    """Counts no further than `WINDOW`: beyond, nobody turns pages."""

    @cached_property
    def count(self) -> int:
        """How many jobs there are, and one more than `WINDOW` where there are more."""
        jobs: Any = self.object_list
        count: int = jobs[: WINDOW + 1].count()
        return count
