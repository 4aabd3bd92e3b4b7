"""How often jobs start: never more than the rate and its burst allow, by the database's clock."""

from __future__ import annotations

import datetime

import pytest
from django.db.models import F

from django_pgjobs import Limit, Rate, enqueue, get_job, registry
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


HOURLY, FAST = Rate(1, per=3600), Rate(1, per=10)


def change(kind: str, rate: Rate) -> None:
    """Declare another rate, as a deploy does."""
    registry._kinds.pop(kind)
    declare(kind, rate=rate)


class Watch:
    """Looks of workers, in steps of so many seconds, and when they started which kind."""

    def __init__(self):
        self.passed = 0.0
        self.started: list[tuple[str, float]] = []

    def go_on(self, workers, *, step: float, steps: int) -> None:
        for _ in range(steps):
            for name, looks in workers.items():
                for claim in taken(3, by=looks):
                    at = Job.objects.get(pk=claim.id).attempted_at.timestamp()
                    self.started.append((f"{name} {claim.kind}", at + self.passed))
            pass_time(step)
            self.passed += step

    def most(self, what: str, seconds: float) -> int:
        """How many of these a window of that length sees at most."""
        times = [at for kind, at in self.started if kind == what]
        return max(len([t for t in times if at <= t < at + seconds]) for at in times)

    def count(self, what: str) -> int:
        return [kind for kind, _at in self.started].count(what)


def test_what_a_slow_rate_has_set_does_not_outlive_it():
    declare(rate=HOURLY).enqueue_many({} for _ in range(9))
    assert [len(taken()), len(taken())] == [1, 0]

    change("call", FAST)

    assert [len(taken()), len(taken())] == [1, 0]
    pass_time(10)
    assert [len(taken()), len(taken())] == [1, 0]
    change("call", HOURLY)  # back again: what it had set stands
    assert taken() == []


def test_while_old_workers_and_new_ones_are_at_work_each_keep_to_their_own_rate():
    declare(rate=Rate(1, per=300)).enqueue_many({} for _ in range(200))
    workers, watch = {"old": claimer()}, Watch()
    change("call", FAST)
    workers["new"] = claimer()

    watch.go_on(workers, step=7, steps=100)

    assert watch.most("old call", 300) == watch.most("new call", 10) == 1
    assert watch.count("old call") == 3
    assert watch.count("new call") >= 40


def test_kinds_that_share_a_key_keep_to_their_rates_when_that_of_another_is_changed():
    slow = declare("slow", rate=HOURLY).using(concurrency_key="shared")
    bursty = declare("bursty", rate=Rate(4, per=100, burst=4)).using(concurrency_key="shared")
    for n in range(120):
        (bursty if n % 6 else slow).enqueue()
    watch = Watch()
    watch.go_on({"a": claimer()}, step=355, steps=10)
    assert watch.count("a slow") == 1
    assert watch.count("a bursty") == 0  # the slow start has set its time for both
    watch.go_on({"a": claimer()}, step=7, steps=3)
    assert watch.count("a bursty") == 3

    change("slow", Rate(1, per=50))
    watch.go_on({"a": claimer()}, step=7, steps=120)

    assert watch.most("a bursty", 100) <= 8
    assert watch.most("a slow", 50) == 1
    assert watch.count("a slow") >= 4
    assert watch.count("a bursty") > 20


def test_what_the_slow_rate_of_a_queue_has_set_does_not_outlive_it(settings):
    get_job("noop").using(queue="api").enqueue_many({} for _ in range(9))
    started = []
    for rate in (HOURLY, FAST, HOURLY):
        settings.PGJOBS = {"QUEUES": {"api": {"rate": rate}}}
        started += [len(taken()), len(taken())]

    assert started == [1, 0, 1, 0, 0, 0]


def test_a_gate_forgets_the_rates_that_are_paid():
    declare(rate=HOURLY).enqueue_many({} for _ in range(9))
    taken()
    change("call", FAST)
    taken()
    assert set(Gate.objects.get().rates) == {"call 3600000000", "call 10000000"}
    pass_time(4000)
    taken()
    assert set(Gate.objects.get().rates) == {"call 10000000"}
