"""`ordered=True`: the jobs of a key run one after the other, in the order in which they were enqueued."""

from __future__ import annotations

import pytest

from django_pgjobs import Limit, get_job, reaper
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Done, Failed, settle
from tests.db.limited import WORKER, claimer, declare, taken
from tests.db.rows import AGO, execute, ids, make_worker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]


@pytest.fixture
def jobs(kinds):
    call = declare(concurrency=Limit(1, key="customer"), ordered=True)
    return [call.enqueue(customer=1) for _ in range(3)]


def settled(claim, delay=0.0, *, done=True):
    failed = Failed(claim, {"error": "E", "message": "no"}, delay)
    assert not settle(execute, WORKER, [Done(claim) if done else failed]).stale


def test_the_next_one_waits_until_the_one_before_it_is_final(jobs):
    for job in jobs:
        [claim] = taken()
        assert claim.id == job.id
        assert taken() == []
        settled(claim)


def test_one_that_waits_for_its_next_attempt_holds_the_later_ones_back(jobs):
    [claim] = taken()
    settled(claim, delay=3600.0, done=False)
    assert taken() == []

    Job.objects.filter(pk=claim.id).update(run_at=AGO)
    assert ids(taken()) == [claim.id]


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_one_that_has_given_up_holds_nobody_back(jobs, end):
    [claim] = taken()
    if end == "failed":
        settled(claim, delay=None, done=False)
    else:
        settled(claim, delay=3600.0, done=False)
        jobs[0].cancel()

    assert ids(taken()) == [jobs[1].id]


def test_one_whose_worker_died_comes_before_the_later_ones(jobs):
    make_worker(id=WORKER, heartbeat_at=AGO)
    [claim] = taken()

    reaper.run(execute)
    assert taken(by=claimer(worker=8)) == []  # it waits for its next attempt

    Job.objects.filter(pk=claim.id).update(run_at=AGO)
    assert ids(taken(by=claimer(worker=8))) == [claim.id]


def test_the_order_is_that_of_the_ids_whatever_priority_and_time_say(jobs):
    call = declare("other", concurrency=Limit(1, key="customer"), ordered=True)
    first = call.using(delay=3600).enqueue(customer=1)
    second = call.using(priority=9).enqueue(customer=1)

    assert ids(taken()) == [jobs[0].id]
    first.reschedule(AGO)
    [claim] = taken()
    assert claim.id == first.id
    settled(claim)
    assert ids(taken()) == [second.id]


def test_each_key_has_an_order_of_its_own(jobs):
    [claim] = taken()
    settled(claim, delay=3600.0, done=False)
    other = get_job("call").enqueue(customer=2)

    assert ids(taken()) == [other.id]


def test_without_a_key_all_of_the_kind_are_in_order():
    call = declare(ordered=True)
    made = [call.enqueue() for _ in range(2)]

    assert ids(taken()) == [made[0].id]
