"""A worker with room for one sort of handlers only claims jobs of that sort, and touches no other."""

from __future__ import annotations

import datetime

import pytest

from django_pgjobs import statements
from django_pgjobs.claims import Claimer
from django_pgjobs.models import Job, Queue
from tests.db.rows import AGO, FUTURE, execute, ids, make, make_worker

pytestmark = pytest.mark.django_db


def claim(limit=100, kinds=("a",), *, among=True, worker=7, **queues):
    return Claimer("default", worker, **queues).claim_kinds(execute, limit, kinds, among=among)


def test_only_these_kinds_or_only_the_others_are_claimed():
    a, b, c = make(kind="a"), make(kind="b"), make(kind="c")

    assert ids(claim()) == [a.id]
    assert ids(claim(kinds=["b"], among=False)) == [c.id]
    b.refresh_from_db()
    assert (b.status, b.claims) == ("pending", 0)


def test_they_come_in_order_and_no_more_than_asked_for():
    late, early = make(kind="a"), make(kind="a", run_at=AGO)
    high = make(kind="a", priority=5, queue="mail")

    assert ids(claim(limit=2)) == [high.id, early.id]
    assert ids(claim(limit=2)) == [late.id]


def test_what_no_claim_takes_this_one_does_not_take():
    make(kind="a", run_at=FUTURE)
    make(kind="a", queue="paused")
    Queue.objects.create(name="paused", paused_at=AGO)
    make(kind="a", queue="not served")
    dead = make_worker(died_at=AGO)

    assert claim(exclude=["not served"]) == []
    assert claim(queues=["elsewhere"]) == []
    assert claim(worker=dead.id) == []


def test_it_looks_at_the_first_jobs_of_each_lane_only():
    for n in range(statements.NEAR):
        make(kind="b", run_at=AGO + datetime.timedelta(seconds=n))
    make(kind="a")
    other_lane = make(kind="a", priority=-5)

    assert ids(claim()) == [other_lane.id]


def test_after_a_claim_that_found_nothing_there_is_none_for_a_moment():
    claimer = Claimer("default", 7)
    asked = []

    def slow(sql, params):
        asked.append(sql)
        return execute(sql, params)

    assert claimer.claim_kinds(slow, 1, ["a"], among=True) == []
    claimer._next_of_kinds[True] += 60
    make(kind="a")
    make(kind="b")
    assert claimer.claim_kinds(slow, 1, ["a"], among=True) == []
    assert len(asked) == 1
    assert len(claimer.claim_kinds(slow, 1, ["a"], among=False)) == 1
    assert Job.objects.running().get().kind == "b"
