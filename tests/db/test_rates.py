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
    assert row(free)["status"] == "pending"


@pytest.mark.usefixtures("api_queue")
def test_without_a_job_a_queue_out_of_tokens_wakes_nobody():
    get_job("noop").using(queue="api").enqueue()
    get_job("noop").using(queue="api", delay=60).enqueue()
    looks = claimer()
    assert len(taken(by=looks)) == 1

    assert taken(by=looks) == []

    assert looks.exhausted


@pytest.mark.usefixtures("api_queue")
def test_a_drain_in_a_test_knows_no_rates():
    """How many jobs it runs would depend on how fast it is."""
    declare(rate=Rate(1, per=60)).enqueue_many({} for _ in range(3))
    get_job("noop").using(queue="api").enqueue_many({} for _ in range(3))

    assert drain() == 6
    declare("later", rate=Rate(1, per=60)).enqueue()
    assert len(taken()) == 1  # no token is gone


@pytest.mark.parametrize(
    ("rate", "every", "at_once"),
    [
        (Rate(50, per=1), 20_834, 2),  # 48 a second, and two that make up for late looks
        (Rate(1000, per=1), 1_053, 50),
        (Rate(1000, per=0.1), 112, 100),
        (Rate(100, per=60), 600_000, 0),
        (Rate(1, per=0.001), 1_000, 0),
        (Rate(50, per=1, burst=0), 20_000, 0),
        (Rate(50, per=1, burst=5), 20_000, 5),
    ],
    ids=str,
)
def test_a_fast_rate_without_a_burst_spares_a_few_starts_for_workers_that_look_late(
    rate, every, at_once
):
    assert (rate.every, rate.at_once) == (every, at_once)


def test_a_worker_that_looks_late_starts_as_many_as_if_it_had_been_in_time():
    declare(rate=Rate(50, per=1)).enqueue_many({} for _ in range(100))
    taken()
    starts = 0
    for _ in range(20):  # each look is 1.4 tokens after the last one
        pass_time(0.028)
        starts += len(taken())

    assert starts >= 20 * 0.028 * 48 - 1


@pytest.mark.parametrize("step", [0.007, 0.028, 0.3])
def test_no_second_sees_more_than_n_of_a_fast_rate_however_late_the_looks(step):
    declare(rate=Rate(50, per=1)).enqueue_many({} for _ in range(200))
    passed, starts = 0.0, []
    while passed < 2:
        pass_time(step)
        passed += step
        started = Job.objects.filter(pk__in=ids(taken())).values_list("attempted_at", flat=True)
        starts += [at + datetime.timedelta(seconds=passed) for at in started]

    second = datetime.timedelta(seconds=1)
    assert len(starts) > 10
    assert all(len([s for s in starts if start <= s < start + second]) <= 50 for start in starts)


def test_starts_are_rounded_so_that_there_are_never_too_many():
    assert Rate(3, per=1).every == 333_334
    assert Rate(10, per=datetime.timedelta(minutes=1)).every == 6_000_000
