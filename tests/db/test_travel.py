"""`make_due()`, `travel()` and `drain(with_delayed=True)`: time passes, by the database's clock."""

from __future__ import annotations

import math
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import connection

from django_pgjobs import InvalidOption, Rate, Snooze, Unique, enqueue, get_job, job
from django_pgjobs.models import Gate, Job
from django_pgjobs.options import LATEST
from django_pgjobs.testing import drain, draining, immediate, make_due, travel
from tests.db.rows import AGO, FUTURE, make, row

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]

HOUR = timedelta(hours=1)


def later(delay, kind="noop"):
    return get_job(kind).using(delay=delay).enqueue()


def test_delayed_jobs_are_made_due():
    jobs = [later(HOUR) for _ in range(5)]

    assert make_due(jobs[0]) == 1
    assert make_due(jobs[:2]) == 1
    assert make_due(Job.objects.filter(pk__in=[j.pk for j in jobs]).order_by("pk")[:3]) == 1
    assert drain() == 3
    assert make_due(Job.objects.all()) == 2
    assert drain() == 2


def test_a_job_that_waits_for_its_next_attempt_is_delayed():
    failing = enqueue("boom")
    drain()

    assert make_due(failing) == 1
    assert drain().failed == 1


def test_whatever_is_not_delayed_stays_as_it_is():
    jobs = [make(), *map(make, ("running", "done", "failed", "cancelled"))]
    before = [row(job) for job in jobs]

    assert make_due(Job.objects.all()) == 0
    assert make_due([]) == 0

    assert [row(job) for job in jobs] == before


@pytest.mark.parametrize("jobs", [7, [7], "7", None, [None], SimpleNamespace(id="7")])
def test_what_is_no_job_is_refused(jobs):
    with pytest.raises(TypeError, match=r"jobs must be a job, .*, got .* Pass what enqueue"):
        make_due(jobs)


def test_due_jobs_run_at_once_where_that_is_the_mode():
    queued = later(HOUR)
    with immediate():
        make_due(queued)

    assert row(queued)["status"] == "done"


@pytest.mark.django_db(databases=["default", "other"])
def test_the_database_of_a_queryset_is_kept():
    get_job("noop").using(database="other", delay=HOUR).enqueue()

    assert make_due(Job.objects.all()) == 0
    assert make_due(Job.objects.using("other")) == 1
    assert drain(database="other") == 1


# --------------------------------------------------------------------------------------- travel


def test_seconds_pass_as_a_timedelta_does():
    later(HOUR)

    travel(3_599.5)
    assert drain() == 0
    travel(1)
    assert drain() == 1


@pytest.mark.parametrize(
    "delta", [timedelta.max, -1, -HOUR, math.nan, math.inf, True, "1", None], ids=repr
)
def test_what_no_time_can_be_moved_by_is_refused_before_any_sql(delta, django_assert_num_queries):
    with (
        django_assert_num_queries(0),
        pytest.raises(InvalidOption, match=r"delta must be .* to 1000 years, got .* Time only"),
    ):
        travel(delta)


def test_after_the_time_a_job_is_due_and_not_before():
    later(HOUR)

    travel(HOUR - timedelta(minutes=1))
    assert drain() == 0
    travel(timedelta(minutes=1))
    assert drain() == 1


def test_all_times_of_a_job_move_by_as_much():
    jobs = [make("running"), make("done"), make(run_at=FUTURE)]
    before = [row(job) for job in jobs]

    travel(timedelta(days=200, microseconds=1))  # over a change of clocks

    for old, job_ in zip(before, jobs, strict=True):
        moved = {c: v - row(job_)[c] for c, v in old.items() if row(job_)[c] != v}
        assert set(moved) == {c for c, v in old.items() if v is not None and hasattr(v, "hour")}
        assert set(moved.values()) == {timedelta(days=200, microseconds=1)}


def test_a_day_has_24_hours_whatever_the_time_zone_of_the_session():
    queued = make(run_at=AGO)
    before = row(queued)["run_at"]

    with connection.cursor() as cursor:
        cursor.execute("set local time zone 'Europe/Berlin'")
        travel(timedelta(days=365 // 2))
        cursor.execute("set local time zone 'UTC'")

    assert before - row(queued)["run_at"] == timedelta(days=365 // 2)


def test_a_period_of_uniqueness_passes():
    daily = get_job("noop").using(unique=Unique(period=HOUR))
    daily.enqueue()
    drain()
    assert daily.enqueue().existed

    travel(HOUR)

    assert not daily.enqueue().existed


def test_the_time_of_rates_passes():
    job(rate=Rate(1, per=60))(_named("seldom")).enqueue()
    drain()
    Gate.objects.update(next_at=FUTURE)

    travel(HOUR)

    assert Gate.objects.get().next_at == FUTURE - HOUR


def _named(name):
    def handler(): ...

    handler.__name__ = name
    return handler


# --------------------------------------------------------------------------------- with_delayed


def _noting(ran):
    def note(n):
        ran.append(n)

    return note


def test_delayed_jobs_run_in_the_order_of_their_times():
    ran = []

    @job
    def first():
        ran.append("first")
        # In two hours from its own time: behind what is due by then.
        get_job("note").using(delay=2 * HOUR).enqueue("last")

    job(kind="note")(_noting(ran))
    get_job("note").using(delay=2 * HOUR, priority=100).enqueue("second")
    later(HOUR, "first")

    assert drain() == 0
    assert drain(with_delayed=True) == 3
    assert ran == ["first", "second", "last"]


def test_a_job_that_becomes_due_between_two_looks_is_run(monkeypatch):
    queued = later(HOUR)
    look = draining.travel_to_next

    def become_due_and_look(jobs):
        make_due(queued)
        return look(jobs)

    monkeypatch.setattr(draining, "travel_to_next", become_due_and_look)

    assert drain(with_delayed=True) == 1
    assert row(queued)["status"] == "done"


def test_with_delayed_a_failing_job_comes_to_its_end():
    failing = enqueue("boom")

    assert drain(with_delayed=True).failed == 5

    assert row(failing)["status"] == "failed"


def test_with_delayed_other_kinds_and_queues_wait():
    others = [
        later(timedelta(minutes=1), "boom"),
        get_job("noop").using(queue="q", delay=1).enqueue(),
    ]
    later(HOUR)

    assert drain(with_delayed=True, kinds=["noop"], queues=["default"]) == 1
    assert [row(other)["status"] for other in others] == ["pending", "pending"]


def test_what_always_comes_back_ends_with_the_limit():
    @job
    def once_more():
        raise Snooze(HOUR)

    once_more.enqueue()

    assert drain(with_delayed=True, limit=10).snoozed == 10


def test_what_is_put_off_for_ever_is_not_waited_for():
    get_job("noop").using(run_at=LATEST).enqueue()
    later(HOUR)

    assert drain(with_delayed=True) == 1


def test_a_failure_is_raised_in_its_time():
    later(HOUR, "boom")

    with pytest.raises(ValueError, match="boom"):
        drain(with_delayed=True, raise_on_failure=True)
