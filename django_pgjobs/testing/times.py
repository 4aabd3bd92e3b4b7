"""Let time pass in a test: rows move, while the clock, which is the database's, does not.

Invariant: what is moved is moved by the database's own clock, so a test does not depend on how that of
its host runs.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from django.db import router
from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Func, Value
from django.db.models.functions import Now

from django_pgjobs import lifecycle, notify
from django_pgjobs.models import Gate, Job, JobQuerySet

# Columns know no time before the year 1 and none after 9999, so no job can be moved by much more.
FOR_EVER = datetime.timedelta(days=365 * 1_000)


def make_due(jobs: Job | Iterable[Job]) -> int:
    """Make delayed jobs due now; return how many. Others of `jobs` are left as they are.

    `jobs` is a job, a queryset or a list of jobs. A job that waits for its next attempt is delayed too.
    """
    delayed = _queryset(jobs).delayed()
    moved = lifecycle.move(delayed, "reschedule", run_at=Now())
    if moved:
        notify.wake(lifecycle.alias_of(delayed), notify.EVERY_QUEUE)
    return moved


def travel(delta: datetime.timedelta, *, database: str | None = None) -> None:
    """Let time pass for all jobs and their rates: each of their times is `delta` earlier afterwards.

    So a job that was to run in an hour is due after `travel(timedelta(hours=1))`, a job that was running
    has been for an hour, and `created_at` says an hour ago. Schedules, and workers, do not notice.

    Raises:
        ValueError: `delta` is negative.

    """
    if delta < datetime.timedelta():
        raise ValueError(f"delta must be 0 or more, got {delta!r}. Time only passes.")
    alias = database or router.db_for_write(Job)
    by = interval(delta)
    for model in (Job, Gate):
        times = [f.name for f in model._meta.concrete_fields if isinstance(f, DateTimeField)]  # noqa: SLF001 -- Django's own API
        model._base_manager.using(alias).update(**{name: F(name) - by for name in times})  # noqa: SLF001 -- all rows
    notify.wake(alias, notify.EVERY_QUEUE)


def travel_to_next(jobs: JobQuerySet) -> bool:
    """Let time pass until the first delayed one of `jobs` is due; return whether there is one.

    What is put off for ever, so to say, is not waited for.
    """
    left = ExpressionWrapper(F("run_at") - Now(), output_field=DurationField())
    wait = jobs.delayed().order_by("run_at").values_list(left, flat=True).first()
    if wait is None or wait > FOR_EVER:
        return False
    travel(max(wait, datetime.timedelta()), database=jobs.db)
    return True


def interval(delta: datetime.timedelta) -> Func:
    """Return the time as the database can add it to another, in seconds.

    A day of its own may have 23 hours, by the time zone of the session.
    """
    return Func(
        Value(delta.total_seconds()),
        template="make_interval(secs => %(expressions)s)",
        output_field=DurationField(),
    )


def _queryset(jobs: Job | Iterable[Job]) -> JobQuerySet:
    """Return what can be filtered further, also where the test's queryset is sliced."""
    chosen = [jobs] if isinstance(jobs, Job) else jobs
    if isinstance(chosen, JobQuerySet):
        alias = lifecycle.alias_of(chosen)
        return Job.objects.using(alias).filter(lifecycle.among(chosen.using(alias)))
    ids = [job.pk for job in chosen]
    return Job.objects.using(router.db_for_write(Job)).filter(pk__in=ids)
