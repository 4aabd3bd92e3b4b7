"""The life of a job: its statuses, the moves between them, and the one guarded UPDATE.

    enqueue ──▶ pending ──claim──▶ running ──complete──▶ done
               ▲  │ ▲ │              │ │ └─fail, reap──▶ failed ────retry by hand──▶ pending
    reschedule └──┘ │ └────cancel────┼─┴──cancel──────▶ cancelled ─retry by hand──▶ pending
                    └── retry · snooze · release · reap

Invariant: no other module writes `status`. Each move names the statuses it leaves, the one it
reaches and every column that it sets, so that a row can never keep half of an earlier state; the
CHECK constraints of the table refuse what would slip through all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db import models, router, transaction
from django.db.models.expressions import RawSQL
from django.utils.translation import pgettext_lazy

from django_pgjobs.uniqueness import PERIOD, START

if TYPE_CHECKING:
    from django_pgjobs.models import Job


class Status(models.TextChoices):
    """The status of a job, as stored; pages show it in words of their language."""

    PENDING = "pending", pgettext_lazy("job", "pending")
    RUNNING = "running", pgettext_lazy("job", "running")
    DONE = "done", pgettext_lazy("job", "done")
    FAILED = "failed", pgettext_lazy("job", "failed")
    CANCELLED = "cancelled", pgettext_lazy("job", "cancelled")
    BLOCKED = "blocked", pgettext_lazy("job", "blocked")  # reserved for dependencies between jobs


FINAL = frozenset({Status.DONE, Status.FAILED, Status.CANCELLED})

# The start of the statement, by the database's clock. Not now(): that is the start of the
# transaction, so in one long transaction (a TestCase) a job enqueued later would never be due.
NOW = "statement_timestamp()"

_MOST = 2**31 - 1  # what the columns of counts can hold

# A unique key says by its beginning how long it is held. It is never set again, so that no settle and
# no retry can collide with a job that has taken it meanwhile.
_HELD_AT_START = f"case when starts_with(unique_key, '{START}:') then null else unique_key end"
_HELD_AT_END = f"case when starts_with(unique_key, '{PERIOD}:') then unique_key end"

_UNLOCK = {"locked_at": "null", "locked_by": "null"}
_FINISH = {"finished_at": NOW, "unique_key": _HELD_AT_END, **_UNLOCK}


@dataclass(frozen=True)
class Move:
    """One arrow of the diagram: from `sources` to `target`, setting `columns`.

    The values of `columns` are SQL expressions over the row as it was. What varies by call (the
    time of a retry, the text of an error) comes with the statement that makes the move.
    """

    sources: frozenset[Status]
    target: Status
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def guard(self) -> str:
        """The SQL condition that a row must meet to make this move."""
        return "status in ({})".format(", ".join(f"'{s.value}'" for s in sorted(self.sources)))

    @property
    def assignments(self) -> str:
        """The SET list of an UPDATE that makes this move."""
        columns = {"status": f"'{self.target.value}'", **self.columns}
        return ", ".join(f"{column} = {value}" for column, value in columns.items())


MOVES: Mapping[str, Move] = {
    "claim": Move(
        frozenset({Status.PENDING}),
        Status.RUNNING,
        {
            # Whatever number SQL has put there, one row must not fail the claim of all.
            "attempts": f"least(attempts, {_MOST - 1}) + 1",
            "claims": f"mod(claims, {_MOST}) + 1",
            "locked_at": NOW,
            "attempted_at": NOW,
            "unique_key": _HELD_AT_START,
        },
    ),
    "release": Move(
        frozenset({Status.RUNNING}),
        Status.PENDING,
        {
            "attempts": "greatest(attempts - 1, 0)",
            "attempted_at": "case when attempts > 1 then attempted_at end",
            **_UNLOCK,
        },
    ),
    # It was started: unlike a release it keeps the time of that.
    "snooze": Move(
        frozenset({Status.RUNNING}),
        Status.PENDING,
        {"attempts": "greatest(attempts - 1, 0)", **_UNLOCK},
    ),
    "complete": Move(frozenset({Status.RUNNING}), Status.DONE, _FINISH),
    "retry": Move(frozenset({Status.RUNNING}), Status.PENDING, _UNLOCK),
    "fail": Move(frozenset({Status.RUNNING}), Status.FAILED, _FINISH),
    "reap": Move(frozenset({Status.RUNNING}), Status.PENDING, _UNLOCK),
    "reap_to_failed": Move(frozenset({Status.RUNNING}), Status.FAILED, _FINISH),
    "cancel": Move(frozenset({Status.PENDING, Status.RUNNING}), Status.CANCELLED, _FINISH),
    "reschedule": Move(frozenset({Status.PENDING}), Status.PENDING),
    "retry_by_hand": Move(
        frozenset({Status.FAILED, Status.CANCELLED}),
        Status.PENDING,
        {
            "run_at": NOW,
            "finished_at": "null",
            "cancel_requested_at": "null",
            # The budget of attempts starts over, while `attempts` goes on counting.
            "max_attempts": f"least(attempts::bigint + greatest(max_attempts - attempts_before, 1), {_MOST})",
            "attempts_before": "attempts",
        },
    ),
}


def move(jobs: models.QuerySet[Job], name: str, **values: Any) -> int:
    """Make the move `name` on those of `jobs` whose status allows it; return how many moved.

    `values` are further columns to set. Rows that another transaction has locked are skipped, not
    waited for: what a verb waits for could be waiting for it. One statement; it joins the caller's
    transaction where there is one. Under REPEATABLE READ PostgreSQL may refuse with its own 40001.
    """
    step = MOVES[name]
    columns = {column: RawSQL(sql, ()) for column, sql in step.columns.items()}
    return _update(jobs, step.sources, status=step.target.value, **columns, **values)


def delete(jobs: models.QuerySet[Job]) -> int:
    """Delete those of `jobs` that are not running; return how many. Locked rows are skipped."""
    alias = alias_of(jobs)
    table = jobs.model._base_manager.using(alias)  # noqa: SLF001 -- without a project's own filters
    idle = table.filter(among(jobs)).exclude(status=Status.RUNNING)
    with transaction.atomic(using=alias, savepoint=False):
        return table.filter(among(idle.select_for_update(skip_locked=True))).delete()[0]


def alias_of(jobs: models.QuerySet[Job]) -> str:
    """Return the database that a move of `jobs` writes to."""
    chosen: str | None = getattr(jobs, "_db", None)  # by using(); no public spelling tells it apart
    return chosen or router.db_for_write(jobs.model)


def _update(jobs: models.QuerySet[Job], sources: frozenset[Status], **values: Any) -> int:
    alias = alias_of(jobs)
    table = jobs.model._base_manager.using(alias)  # noqa: SLF001 -- without a project's own filters
    # The caller's queryset may be sliced, distinct or joined, which FOR UPDATE refuses, so it only
    # chooses ids. The guard stands beside the lock, where PostgreSQL checks it again on the newest
    # version of a row; inside `jobs` it would be checked on the version of the snapshot alone.
    guard = {"status__in": sorted(sources)}
    locked = table.filter(among(jobs), **guard).select_for_update(skip_locked=True)
    with transaction.atomic(using=alias, savepoint=False):
        return table.filter(among(locked), **guard).update(**values)


def among(jobs: models.QuerySet[Job]) -> models.Func:
    """Return the condition `id = any(array(...))`: unlike IN it is read once, whatever the planner thinks."""
    return _any(ArraySubquery(jobs.values("pk")))


def one_of(ids: list[int]) -> models.Func:
    """Return the condition `id = any('{...}')`: unlike IN it is one parameter, however many there are."""
    return _any(models.Value(ids))


def _any(ids: Any) -> models.Func:
    return models.Func(
        models.F("pk"),
        ids,
        template="%(expressions)s)",
        arg_joiner=" = any(",
        output_field=models.BooleanField(),
    )
