"""Enqueue a job at each tick of a schedule, and keep the table in step with the code.

Any worker does it. A tick is one transaction under the lock of the schedule's row: the job is inserted
as by any other caller, and `next_at` moves on, or neither. Rows that somebody else holds are passed
over, so workers share the due ones out.

Invariant: one job per schedule and tick, whoever is killed when; and the database's clock alone says
which ticks are due.
"""

from __future__ import annotations

import copy
import datetime
import json
import logging
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from django.db import connections, transaction
from django.db.models import DurationField, ExpressionWrapper, Min, Q
from django.db.models.functions import Coalesce, Now

from django_pgjobs import conf, payloads, registry
from django_pgjobs.exceptions import DuplicateJob
from django_pgjobs.models import Job, Schedule
from django_pgjobs.rules import Every, Recurring, Rule
from django_pgjobs.sessions import CONNECTION_ERRORS
from django_pgjobs.timetable import ScheduleQuerySet

logger = logging.getLogger(__name__)

BATCH = 100  # schedules of one transaction
MOST_MISSED = 100  # ticks that missed="all" makes up for, the latest ones
GRACE = datetime.timedelta(seconds=60)  # by which a tick may be late and is not missed

# The server ends what stands still, with the rows that it has locked; and it waits for no lock for long.
_BOUNDS = """select set_config('idle_in_transaction_session_timeout', '10s', true),
set_config('lock_timeout', '2s', true)"""


class Enqueued(NamedTuple):
    """The job of a schedule: a new one, or that which has its unique key, and stands for it."""

    job_id: int | None
    is_new: bool


def seconds_to_tick(alias: str, but: Collection[int] = ()) -> float | None:
    """Return how long until a tick is due, by the database's clock; None where nothing is scheduled.

    Schedules whose kind has no handler here are other workers', and those in `but` are left out.
    """
    wait = ExpressionWrapper(Min(Coalesce("next_at", "since")) - Now(), DurationField())
    found = _ours(alias, but).active().aggregate(wait=wait)["wait"]
    return None if found is None else max(0.0, found.total_seconds())


def tick(alias: str, but: Collection[int] = ()) -> tuple[int, list[int]]:
    """Fire what is due, a batch in one transaction; return how many, and those that cannot be fired.

    What one of them raises is logged and leaves the others alone.

    Raises:
        django.db.Error: the connection is lost. Nothing of this batch has happened, or all of it.

    """
    fired, refused = 0, []
    with transaction.atomic(using=alias):
        with connections[alias].cursor() as cursor:
            cursor.execute(_BOUNDS)
        due = _ours(alias, but).due().timed().order_by("next_at", "id")
        for schedule in due.select_for_update(skip_locked=True)[:BATCH]:
            try:
                with transaction.atomic(using=alias):
                    _fire(schedule, alias)
                fired += 1
            except CONNECTION_ERRORS:
                raise
            except Exception as error:  # noqa: BLE001 -- a rule, a payload, a receiver of signals
                logger.error("Schedule %s cannot be fired: %s", schedule, error)  # noqa: TRY400
                refused.append(schedule.pk)
    return fired, refused


def enqueue_now(schedule: Schedule, alias: str) -> Enqueued:
    """Enqueue a job of a schedule beside its ticks, in the current transaction.

    Raises:
        UnknownKind, InvalidPayload: as `enqueue()`.

    """
    return _enqueue(schedule, {"schedule": schedule.name}, alias)


def check(kind: str, payload: dict[str, Any]) -> None:
    """Raise `UnknownKind` or `InvalidPayload` where a tick would."""
    given = payloads.decode(json.dumps(payload))
    arguments = registry.get_job(kind).signature.bind(kind, (), given)
    payloads.encode(arguments, max_bytes=conf.get().max_payload_bytes)


def upcoming(schedule: Any) -> Iterator[datetime.datetime]:
    """Yield the ticks of a `timed()` schedule after now, whether or not it is switched on."""
    rule: Rule = schedule.rule
    moment = schedule.following or rule.after(schedule.begins)
    for past in rule.latest(moment, schedule.now, 1):
        moment = rule.after(past)
    while True:
        yield moment
        moment = rule.after(moment)


def synchronise(alias: str) -> None:
    """Bring the rows that come from code up to this process's code. It may run anywhere, at any time.

    What the code says wins over what other code said before. A row that staff have switched off stays
    so, and one whose kind this code does not know is other code's.
    """
    declared = {one.name: (kind, one) for kind, one in _declared()}
    schedules = Schedule.objects.using(alias).defer(*Schedule.added)
    with transaction.atomic(using=alias):
        # In order, as everybody does it who waits for these locks.
        rows = schedules.filter(Q(from_code=True) | Q(name__in=declared)).order_by("name")
        there = {row.name: row for row in rows.select_for_update()}
        new = [
            Schedule(name=name, from_code=True, **_columns(*declared[name]))
            for name in sorted(declared.keys() - there.keys())
        ]
        schedules.bulk_create(new, ignore_conflicts=True)  # another worker starts at the same time
        for name, row in there.items():
            if name not in declared:
                _remove(row)
            elif row.from_code:
                _update(row, _columns(*declared[name]))
            else:
                logger.warning(
                    "The schedule %s of the code is left out: one made by hand has its name. Rename it.",
                    name,
                )


def _ours(alias: str, but: Collection[int]) -> ScheduleQuerySet:
    known = Schedule.objects.using(alias).defer(*Schedule.added).filter(kind__in=registry.kinds())
    return known.exclude(pk__in=but) if but else known


def _fire(schedule: Any, alias: str) -> None:
    """Enqueue the jobs of the ticks up to now that count, and move on to the first one after it."""
    rule: Rule = schedule.rule
    first = schedule.following or rule.after(schedule.begins)
    everything = schedule.missed == Schedule.Missed.ALL
    ticks = rule.latest(first, schedule.now, MOST_MISSED if everything else 1)
    for moment in ticks:
        if schedule.missed == Schedule.Missed.SKIP and moment < schedule.now - GRACE:
            logger.info("Schedule %s: its tick at %s was missed.", schedule, moment)
            continue
        meta = {"schedule": schedule.name, "tick": moment.isoformat()}
        job_id, is_new = _enqueue(schedule, meta, alias, run_at=moment)
        schedule.last_at = moment
        logger.info(
            "Schedule %s: job %s %s the tick at %s.",
            schedule,
            job_id,
            "is for" if is_new else "stands for",
            moment,
            extra={"job_id": job_id, "kind": schedule.kind},
        )
    schedule.next_at = rule.after(ticks[-1]) if ticks else first
    schedule.save(using=alias, update_fields=["next_at", "last_at"])


def _enqueue(schedule: Schedule, meta: dict[str, str], alias: str, **options: Any) -> Enqueued:
    job_type = copy.copy(registry.get_job(schedule.kind))
    job_type.options = replace(job_type.options, database=alias, meta=meta, **options)
    try:
        job: Job = job_type.enqueue(**payloads.decode(json.dumps(schedule.payload)))
    except DuplicateJob as error:
        return Enqueued(error.job_id, is_new=False)
    return Enqueued(job.pk, is_new=not job.existed)


def _declared() -> Iterator[tuple[str, Recurring]]:
    for job_type in set(registry.kinds().values()):
        for one in job_type.schedules:
            yield job_type.kind, one


def _columns(kind: str, one: Recurring) -> dict[str, Any]:
    """Return what the code decides of a row."""
    rule = one.rule
    return {
        "kind": kind,
        "payload": one.payload,
        "cron": "" if isinstance(rule, Every) else rule.expression,
        "tz": "UTC" if isinstance(rule, Every) else rule.tz,
        "every": rule.interval if isinstance(rule, Every) else None,
        "missed": one.missed,
    }


def _update(row: Schedule, columns: dict[str, Any]) -> None:
    changed = {name for name, value in columns.items() if getattr(row, name) != value}
    if not changed and row.removed_at is None:
        return
    if changed & {"cron", "tz", "every"} or row.removed_at is not None:
        columns |= {"since": Now(), "next_at": None, "removed_at": None}
    Schedule.objects.using(row._state.db).filter(pk=row.pk).update(**columns)  # noqa: SLF001
    logger.info(
        "Schedule %s follows the code: %s.", row, ", ".join(sorted(changed)) or "it is back"
    )


def _remove(row: Schedule) -> None:
    """Stop a schedule that the code of its kind declares no more."""
    if row.removed_at is None and registry.find(row.kind) is not None:
        rows = Schedule.objects.using(row._state.db).filter(pk=row.pk)  # noqa: SLF001
        rows.update(removed_at=Now(), next_at=None)
        logger.info("Schedule %s is not in the code any more: it stops.", row)
