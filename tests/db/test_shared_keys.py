"""Kinds that share a key from several queues stand in one line: none is passed by for good."""

from __future__ import annotations

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from django_pgjobs import Limit, Rate
from django_pgjobs.models import Gate, Job, Queue
from django_pgjobs.outcomes import Done, settle
from tests.db.limited import WORKER, claimer, declare, taken
from tests.db.rows import AGO, FUTURE, claim_of, execute, make_worker

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]

LOOSE = 3


@pytest.fixture
def loose():
    """A kind of the queue `a` and the key `shared`, with more due jobs than will ever run."""
    kind = declare("loose", concurrency=Limit(LOOSE)).using(queue="a", concurrency_key="shared")
    kind.enqueue_many({} for _ in range(20))
    return kind


@pytest.fixture
def strict():
    """A kind of the same key that runs alone, in the queue `b`."""
    return declare("strict", concurrency=Limit(1)).using(queue="b", concurrency_key="shared")


def rounds(*workers) -> list[list[str]]:
    """In each round the oldest job ends, then every worker looks; return what starts in each."""
    started = []
    for _round in range(2 * LOOSE):
        oldest = Job.objects.running().earliest("attempted_at", "id")
        assert not settle(execute, WORKER, [Done(claim_of(oldest))]).stale
        started.append([claim.kind for looks in workers for claim in taken(1, by=looks)])
        at_work = list(Job.objects.running().values_list("kind", flat=True))
        assert len(at_work) <= (1 if "strict" in at_work else LOOSE)
    return started


def come_later(kind: str) -> None:
    """Let what waits of a kind be due since this moment, as the newest of a stream is."""
    Job.objects.pending().filter(kind=kind).update(run_at=Now())


@pytest.mark.parametrize("queue", ["a", "b"])
def test_a_stricter_kind_starts_however_much_waits_behind_it(loose, strict, queue):
    looks = claimer()
    assert [len(taken(1, by=looks)) for _ in range(LOOSE)] == [1] * LOOSE
    strict.using(queue=queue, priority=1 if queue == "a" else 0).enqueue()
    come_later("loose")

    assert rounds(looks)[: LOOSE + 1] == [[], [], ["strict"], ["loose"]]


def test_it_does_so_where_each_queue_has_a_worker_of_its_own(loose, strict):
    make_worker(queues=["b"])
    mine, other = claimer(queues=["a"]), claimer(queues=["b"])
    assert [len(taken(1, by=mine)) for _ in range(LOOSE)] == [1] * LOOSE
    strict.enqueue()
    come_later("loose")

    assert rounds(mine, other)[: LOOSE + 1] == [[], [], ["strict"], ["loose"]]


def test_a_stricter_rate_starts_however_much_of_another_one_waits_behind_it():
    shared = {"concurrency_key": "shared"}
    loose = declare("loose", rate=Rate(1, per=60, burst=5)).using(queue="a", **shared)
    strict = declare("strict", rate=Rate(1, per=60)).using(queue="b", **shared)
    loose.enqueue_many({} for _ in range(9))
    assert len(taken(2)) == 2
    strict.enqueue()
    come_later("loose")

    assert taken() == []  # for the loose one there are tokens
    Gate.objects.update(next_at=AGO)
    assert [claim.kind for claim in taken(1)] == ["strict"]


@pytest.mark.parametrize(
    "state", ["paused", "unserved", "served by a dead worker", "by transaction", "delayed", "lower"]
)
def test_what_nobody_can_start_or_comes_later_holds_up_nobody(loose, strict, state):
    columns = {"delayed": {"run_at": FUTURE}, "lower": {"priority": -1}}.get(state, {})
    mine = claimer(queues=["a"])
    match state:
        case "paused":
            Queue.objects.create(name="b", paused_at=timezone.now())
            mine = claimer()
        case "served by a dead worker":
            make_worker(queues=["b"], died_at=AGO)
        case "by transaction":
            make_worker(queues=["b"], by_transaction=["b"])
        case "delayed" | "lower":
            make_worker(queues=["b"])
    job = strict.enqueue()
    Job.objects.filter(pk=job.pk).update(**{"run_at": AGO, **columns})

    assert len(taken(by=mine)) == LOOSE


def test_what_is_no_stricter_or_came_later_holds_up_nobody(loose):
    make_worker(queues=["b"])
    declare("same", concurrency=Limit(LOOSE)).using(queue="b", concurrency_key="shared").enqueue()
    Job.objects.filter(kind="same").update(run_at=AGO)
    assert len(taken(by=claimer(queues=["a"]))) == LOOSE
