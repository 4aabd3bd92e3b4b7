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
from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.models import Gate, Job, JobQuerySet
from django_pgjobs.testing.kinds import Result, listed

# Columns know no time before the year 1 and none after 9999, so no job can be moved by much more.
FOR_EVER = datetime.timedelta(days=365 * 1_000)


def make_due(jobs: Job | Result | Iterable[Job | Result]) -> int:
    """Make delayed jobs due now; return how many. Others of `jobs` are left as they are.

    `jobs` is a job, a queryset, the result of a task, or a list of jobs and results. A job that waits for
    its next attempt is delayed too.

    Raises:
        TypeError: it is something else.

    """
    delayed = _queryset(jobs).delayed()
    moved = lifecycle.move(delayed, "reschedule", run_at=Now())
    if moved:
        notify.wake(lifecycle.alias_of(delayed), notify.EVERY_QUEUE)
    return moved


def travel(delta: float | datetime.timedelta, *, database: str | None = None) -> None:
    """Let time pass for all jobs and their rates: each of their times is `delta` earlier afterwards.

    `delta` is a `timedelta`, or a number of seconds.

    So a job that was to run in an hour is due after `travel(timedelta(hours=1))`, a job that was running
    has been for an hour, and `created_at` says an hour ago. Schedules, and workers, do not notice.

    Raises:
        InvalidOption: `delta` is negative, over 1,000 years, or no time at all.

    """
    alias = database or router.db_for_write(Job)
    by = interval(_passed(delta))
    for model in (Job, Gate):
        times = [f.name for f in model._meta.concrete_fields if isinstance(f, DateTimeField)]  # noqa: SLF001 -- Django's own API
        model._base_manager.using(alias).update(**{name: F(name) - by for name in times})  # noqa: SLF001 -- all rows
    notify.wake(alias, notify.EVERY_QUEUE)


def _passed(delta: object) -> datetime.timedelta:
    seconds = delta.total_seconds() if isinstance(delta, datetime.timedelta) else delta
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0 <= seconds <= FOR_EVER.total_seconds():  # type: ignore[operator]  # false for NaN
        raise InvalidOption(
            "delta must be a timedelta or a number of seconds, from 0 to 1000 years, got "
            f"{delta!r:.80}. Time only passes."
        )
    return datetime.timedelta(seconds=seconds)  # type: ignore[arg-type]


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


def _queryset(jobs: Job | Result | Iterable[Job | Result]) -> JobQuerySet:
    """Return what can be filtered further, also where the test's queryset is sliced."""
    if isinstance(jobs, JobQuerySet):
        alias = lifecycle.alias_of(jobs)
        return Job.objects.using(alias).filter(lifecycle.among(jobs.using(alias)))
    ids = [_id_of(job) for job in listed(jobs)]
    return Job.objects.using(router.db_for_write(Job)).filter(pk__in=ids)


def _id_of(job: object) -> int:
    if isinstance(job, Job):
        return job.pk
    if isinstance(job, Result) and job.id.isdecimal():  # other backends have ids of another kind
        return int(job.id)
    raise TypeError(
        f"jobs must be a job, a queryset, a task's result or a list of them, got {job!r:.80}. "
        "Pass what enqueue() returned."
    )
