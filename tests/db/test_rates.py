"""How often jobs start: never more than the rate and its burst allow, by the database's clock."""

from __future__ import annotations

import datetime

import pytest
from django.db.models import F

from django_pgjobs import Limit, Rate, enqueue, get_job
from django_pgjobs.models import Gate, Job
from django_pgjobs.testing import drain
from tests.db.limited import claimer, declare, taken
from tests.db.rows import ids, row

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]


def pass_time(seconds):
    """Let so much time pass for the gates: tests move rows, not the clock."""
    Gate.objects.update(next_at=F("next_at") - datetime.timedelta(seconds=seconds))


def test_starts_are_spread_evenly_over_the_period():
    declare(rate=Rate(2, per=3600)).enqueue_many({} for _ in range(5))

    assert len(taken()) == 1
    assert taken() == []
    pass_time(1799)
    assert taken() == []
    pass_time(1)
    assert len(taken()) == 1


def test_after_a_quiet_time_a_burst_may_start_at_once_and_never_more():
    declare(rate=Rate(2, per=3600, burst=3)).enqueue_many({} for _ in range(20))
    started = [len(taken())]
    for seconds in (1_000_000, 1800, 1800):  # an outage first
        pass_time(seconds)
        started.append(len(taken()))

    assert started == [4, 4, 1, 1]  # the burst and one, then the pace


@pytest.mark.parametrize(("n", "burst"), [(1, 0), (3, 2), (10, 0), (10, 7)])
def test_no_window_of_the_period_sees_more_than_n_and_the_burst(n, burst):
    declare(rate=Rate(n, per=100, burst=burst)).enqueue_many({} for _ in range(60))
    now, starts = 0.0, []

    steps = [3, 4, 1, 5, 2] * 8
    for step in [*steps, 300, *steps]:
        pass_time(step)
        now += step
        starts += [now] * len(taken(5))

    assert len(starts) > n
    for start in starts:
        assert len([s for s in starts if start <= s < start + 99.9]) <= n + burst


def test_each_key_has_a_rate_of_its_own_and_waiting_rows_are_not_written():
    call = declare(rate=Rate(1, per=60, key="customer"))
    waiting = [call.enqueue(customer=n % 2) for n in range(4)][2:]
    before = [row(job) for job in waiting]

    assert len(taken()) == 2
    assert taken() == []
    assert [row(job) for job in waiting] == before


def test_a_rate_and_a_limit_of_one_key_hold_both():
    call = declare(
        concurrency=Limit(2, key="customer"), rate=Rate(1, per=60, burst=9, key="customer")
    )
    call.enqueue_many({"customer": 1} for _ in range(5))

    assert len(taken()) == 2
    assert taken() == []


def test_a_worker_sleeps_until_the_next_token():
    declare(rate=Rate(1, per=60)).enqueue_many({} for _ in range(2))
    looks = claimer()
    assert looks.exhausted
    assert len(taken(by=looks)) == 1

    assert taken(by=looks) == []

    assert 50 < looks.seconds <= 60
    assert not looks.exhausted  # a drain waits for it


def test_a_rate_that_holds_nothing_back_wakes_nobody():
    declare(rate=Rate(1, per=60)).enqueue()
    looks = claimer()
    assert len(taken(by=looks)) == 1

    assert taken(by=looks) == []

    assert looks.exhausted


def test_keys_out_of_tokens_hide_none_behind_them():
    call = declare(rate=Rate(1, per=60, key="customer"))
    call.enqueue_many({"customer": f"a{n % 20}"} for n in range(40))
    assert len(taken()) == 20
    last = call.enqueue(customer="b")
    looks = claimer()

    assert ids(taken(1, by=looks)) == [last.id]  # in one look, though it has room for one
    assert taken(1, by=looks) == []
    assert 50 < looks.seconds <= 60


def test_every_attempt_is_a_start():
    call = declare(rate=Rate(1, per=60))
    call.enqueue()
    [claim] = taken()
    Job.objects.filter(pk=claim.id).update(status="pending", locked_at=None, locked_by=None)

    assert taken() == []


@pytest.fixture
def api_queue(settings):
    settings.PGJOBS = {"QUEUES": {"api": {"rate": Rate(1, per=60, burst=1)}}}


@pytest.mark.usefixtures("api_queue")
def test_a_queue_has_a_rate_whatever_its_jobs_are():
    call = declare(concurrency=Limit(5, key="customer")).using(queue="api")
    call.enqueue_many({"customer": n} for n in range(3))
    get_job("noop").using(queue="api").enqueue_many({} for _ in range(3))
    free = enqueue("noop")
    looks = claimer()

    assert len(taken(by=looks)) == 2
    assert taken(by=looks) == []
    assert 50 < looks.seconds <= 60
    assert drain() == 1
    assert row(free)["status"] == "done"


@pytest.mark.usefixtures("api_queue")
def test_without_a_job_a_queue_out_of_tokens_wakes_nobody():
    get_job("noop").using(queue="api").enqueue()
    get_job("noop").using(queue="api", delay=60).enqueue()
    looks = claimer()
    assert len(taken(by=looks)) == 1

    assert taken(by=looks) == []

    assert looks.exhausted


def test_starts_are_rounded_so_that_there_are_never_too_many():
    assert Rate(3, per=1).every == 333_334
    assert Rate(10, per=datetime.timedelta(minutes=1)).every == 6_000_000
