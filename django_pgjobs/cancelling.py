"""Cancel jobs from outside: pending ones at once, running ones by a request to their workers.

Invariant: one guarded statement, so each job is either cancelled, asked to stop, or as it was; and the
answer says how many of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from django.core.exceptions import EmptyResultSet
from django.db import connections, models, transaction
from django.db.models.expressions import RawSQL
from django.db.models.sql import UpdateQuery

from django_pgjobs.lifecycle import MOVES, NOW, alias_of, among

if TYPE_CHECKING:
    from django_pgjobs.models import Job

_MOVE = MOVES["cancel"]
_CHOSEN = RawSQL("id = any(array(select job from chosen))", (), models.BooleanField())


class CancelReply(int):
    """How many jobs a cancel reached: those cancelled `at_once`, and those `requested` to stop.

    `skipped` counts those that it did not reach although they were pending or running: another
    transaction had locked their rows at that moment. Finished jobs count nowhere.
    """

    at_once: int
    requested: int
    skipped: int

    @classmethod
    def of(cls, at_once: int, requested: int, skipped: int) -> Self:
        """Make the reply of these counts."""
        reply = cls(at_once + requested)
        reply.at_once, reply.requested, reply.skipped = at_once, requested, skipped
        return reply


def cancel(jobs: models.QuerySet[Job]) -> CancelReply:
    """Cancel the pending ones of `jobs` and ask the running ones to stop; return how many.

    A running job keeps its status until its worker settles it: `cancel_requested_at` is the request,
    which its handler may follow, and which turns a retry into `cancelled`. Locked rows are skipped, as
    by `lifecycle.move()`.
    """
    alias = alias_of(jobs)
    with transaction.atomic(using=alias, savepoint=False):
        try:
            sql, params = _compile(jobs, alias)
        except EmptyResultSet:  # Job.objects.none(), in whatever disguise
            return CancelReply.of(0, 0, 0)
        with connections[alias].cursor() as cursor:
            cursor.execute(sql, params)
            return CancelReply.of(*cursor.fetchone())


def _compile(jobs: models.QuerySet[Job], alias: str) -> tuple[str, tuple[Any, ...]]:
    """Return the UPDATE that lifecycle.move() would make, with the counts of what it did.

    Raw: the ORM's own UPDATE returns no rows. `chosen` is counted in the same snapshot, before the locks.
    """
    table = jobs.model._base_manager.using(alias)  # noqa: SLF001 -- without a project's own filters
    guard = {"status__in": sorted(_MOVE.sources)}
    chosen = table.filter(among(jobs), **guard).values("pk")
    free = table.filter(_CHOSEN, **guard).select_for_update(skip_locked=True)
    update: UpdateQuery = table.filter(among(free), **guard).query.chain(UpdateQuery)  # type: ignore[assignment]
    update.add_update_values(_values())
    found, found_params = chosen.query.get_compiler(using=alias).as_sql()
    changed, changed_params = update.get_compiler(using=alias).as_sql()
    sql = f"""
with chosen(job) as materialized ({found}), reached as ({changed} returning status),
counted as (
    select count(*) filter (where status = '{_MOVE.target.value}') as at_once,
        count(*) filter (where status <> '{_MOVE.target.value}') as requested, count(*) as jobs
    from reached
)
select at_once, requested, greatest(0, (select count(*) from chosen) - jobs) from counted
"""
    return sql, (*found_params, *changed_params)


def _values() -> dict[str, Any]:
    def if_pending(then: str, otherwise: str = "null") -> RawSQL:
        return RawSQL(f"case status when 'pending' then {then} else {otherwise} end", ())

    return {
        "status": if_pending(f"'{_MOVE.target.value}'", "status"),
        "finished_at": if_pending(NOW),
        "unique_key": if_pending(_MOVE.columns["unique_key"], "unique_key"),
        "cancel_requested_at": RawSQL(f"coalesce(cancel_requested_at, {NOW})", ()),
    }
