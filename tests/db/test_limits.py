"""What one look of a worker claims of jobs with a key, and of those of limited queues."""

from __future__ import annotations

import datetime
import math

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgjobs import Limit, Rate, enqueue, get_job, limited_lanes
from django_pgjobs.claims import Claimer
from django_pgjobs.limited_claims import _Lane
from django_pgjobs.limits import check_key
from django_pgjobs.models import Gate, Job, Queue
from django_pgjobs.outcomes import Done, settle
from django_pgjobs.sessions import DjangoExecutor
from django_pgjobs.testing import drain
from tests.db.limited import WORKER, claimer, declare, taken
from tests.db.rows import AGO, FUTURE, claimed, execute, ids, make, make_worker, row

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]


def complete(*claims, by=None):
    assert not settle(execute, WORKER, [Done(claim) for claim in claims]).stale
    for claim in claims:
        if by:
            by.let_go(claim.id)


def keys(claims):
    return [row(claim)["concurrency_key"] for claim in map(as_job, claims)]


def as_job(claim):
    return Job.objects.get(pk=claim.id)


# ---------------------------------------------------------------------------------------- keys


def test_no_more_of_a_key_run_than_its_limit_and_a_freed_slot_is_used_by_the_next_look():
    call = declare(concurrency=Limit(3, key="customer"))
    call.enqueue_many({"customer": n % 2} for n in range(10))
    looks = claimer()

    first = taken(by=looks)
    assert sorted(keys(first)) == ["call:0"] * 3 + ["call:1"] * 3
    assert taken(by=looks) == []

    complete(first[0], by=looks)
    assert looks.seconds == 0
    assert keys(taken(by=looks)) == ["call:0"]


def test_a_limit_without_a_key_is_one_of_the_kind():
    call, other = declare(concurrency=Limit(2)), declare("other", concurrency=Limit(1))
    call.enqueue_many({} for _ in range(3))
    other.enqueue_many({} for _ in range(3))

    assert sorted(claim.kind for claim in taken()) == ["call", "call", "other"]


def test_every_way_to_enqueue_stores_the_key():
    call = declare(concurrency=Limit(1, key="customer"))
    ids_ = [
        call.enqueue(5).id,
        call.using(delay=60).enqueue(customer="5").id,
        call.using(concurrency_key="mine").enqueue().id,
        *call.enqueue_many([{"customer": 6}, {}]),
        *call.using(concurrency_key="mine").enqueue_many([{"customer": 6}]),
    ]

    stored = dict(Job.objects.values_list("id", "concurrency_key"))
    assert [stored[n] for n in ids_] == ["call:5", "call:5", "mine", "call:6", None, "mine"]
    assert call.enqueue(customer=7).concurrency_key == "call:7"
    long = call.using(concurrency_key="x" * 300).enqueue()
    assert long.concurrency_key == row(long)["concurrency_key"] == check_key("x" * 300)


def test_what_has_a_key_is_for_no_other_claim():
    call = declare(concurrency=Limit(2))
    before, free, after = call.enqueue(), enqueue("noop"), call.enqueue()

    assert ids(claimed()) == [free.id]
    assert ids(taken()) == ids([before, after])


@pytest.mark.parametrize("kind", ["noop", "nobody.knows.it"])
def test_a_key_without_a_declared_limit_is_one_at_a_time(kind):
    for _ in range(3):
        make(kind=kind, concurrency_key="mine")

    assert len(taken()) == 1
    assert taken() == []


def test_kinds_that_share_a_key_each_obey_their_own_limit():
    one = declare("one", concurrency=Limit(1)).using(concurrency_key="account")
    three = declare("three", concurrency=Limit(3)).using(concurrency_key="account")
    three.using(priority=1).enqueue()
    three.enqueue()
    one.enqueue()
    three.enqueue()  # it waits behind `one`, which would never find the key unused otherwise

    first = taken()
    assert [claim.kind for claim in first] == ["three", "three"]
    complete(*first)
    assert [claim.kind for claim in taken()] == ["one"]
    assert taken() == []  # as long as it is at work, its limit counts
    stale = _Lane(1, "default", "account", "three", 0, ordered=False, free=True, wait=0.0)
    assert (
        claimer()._take(DjangoExecutor("default"), [stale], 8) == []
    )  # whatever the look has found


def test_within_a_key_jobs_come_by_priority_time_and_id():
    call = declare(concurrency=Limit(9))
    low, late, early = (
        make(kind="call", concurrency_key="call", **columns)
        for columns in ({"priority": -1}, {}, {"run_at": AGO})
    )
    high = call.using(priority=9).enqueue()
    make(kind="call", concurrency_key="call", run_at=FUTURE, priority=50)

    looks = claimer()
    assert [ids(taken(1, by=looks)) for _ in range(5)] == [
        *([n] for n in ids([high, early, late, low])),
        [],
    ]


def test_the_first_of_a_key_get_its_slots():
    declare(concurrency=Limit(2))
    late, high, early = (
        make(kind="call", concurrency_key="call", **columns)
        for columns in ({}, {"priority": 9}, {"run_at": AGO})
    )

    assert ids(taken()) == ids([high, early])
    assert row(late)["status"] == "pending"


def test_keys_are_served_in_turn():
    call = declare(concurrency=Limit(5, key="customer"))
    call.enqueue_many({"customer": n // 5} for n in range(15))
    looks = claimer()

    turns = [sorted(keys(taken(2, by=looks))) for _ in range(3)]

    assert turns == [["call:0", "call:1"], ["call:2", "call:2"], ["call:0", "call:1"]]


def test_a_worker_serves_the_queues_that_it_was_told_and_no_paused_one():
    call = declare(concurrency=Limit(1, key="customer"))
    jobs = {q: call.using(queue=q).enqueue(customer=q) for q in ("a", "b", "c", "d")}
    Queue.objects.create(name="b", paused_at=timezone.now())

    assert ids(taken(by=claimer(queues=["a", "b", "z"]))) == [jobs["a"].id]
    assert ids(taken(by=claimer(exclude=["d"]))) == [jobs["c"].id]


def test_a_worker_whose_death_is_recorded_claims_nothing():
    declare(concurrency=Limit(1)).enqueue()
    make_worker(id=WORKER, died_at=AGO)

    assert taken() == []
    assert len(taken(by=claimer(worker=8))) == 1


def test_slots_of_a_dead_worker_come_back_with_the_reaper():
    from django_pgjobs import reaper  # noqa: PLC0415 -- for this test

    call = declare(concurrency=Limit(1, key="customer"))
    call.enqueue_many({"customer": 1} for _ in range(3))
    make_worker(id=WORKER, died_at=None, heartbeat_at=AGO)
    [lost] = taken()
    assert taken(by=claimer(worker=8)) == []

    reaper.run(execute)

    assert len(taken(by=claimer(worker=8))) == 1
    assert lost.id not in ids(Job.objects.running())


def test_a_row_that_somebody_is_cancelling_is_left(django_db_blocker):
    call = declare(concurrency=Limit(1))
    cancelled, kept = call.enqueue(), call.enqueue()
    assert cancelled.cancel() == 1

    assert ids(taken()) == [kept.id]


def surveyed(**served) -> float:
    """In how many seconds something with a limit is due, as a full claim finds."""
    claims = Claimer("default", WORKER, **served)
    claims.claim(execute, 1)
    return claims.limited_due


def test_a_full_claim_tells_when_there_is_something_to_look_for():
    assert surveyed() == math.inf

    call = declare(concurrency=Limit(1))
    call.using(delay=3600).enqueue()
    call.using(delay=60, queue="b").enqueue()
    make(run_at=FUTURE)
    assert 50 < surveyed() <= 60
    assert 50 < surveyed(queues=["default", "b"]) <= 60
    assert 3590 < surveyed(queues=["default"]) <= 3600
    assert 3590 < surveyed(exclude=["b"]) <= 3600
    assert surveyed(queues=["c"]) == surveyed(exclude=["default", "b"]) == math.inf

    call.using(queue="b").enqueue()
    assert surveyed() <= 0
    Queue.objects.create(name="b", paused_at=timezone.now())
    assert 3590 < surveyed() <= 3600


def test_a_worker_looks_when_something_is_due_and_not_before():
    looks = claimer()
    for due in (3600.0, math.inf):
        looks.note_survey(due, at_once=True)
        assert looks.seconds > 3590
        assert looks.exhausted  # a drain does not wait for it

    looks.note_survey(-1.0, at_once=True)
    assert looks.seconds == 0
    assert not looks.exhausted


def test_an_idle_worker_makes_one_statement_a_round_whatever_is_declared_and_delayed(settings):
    settings.PGJOBS = {"QUEUES": {"mail": {"concurrency": 2}, "api": {"rate": Rate(1, per=60)}}}
    call = declare(concurrency=Limit(1, key="customer"))
    call.using(delay=60).enqueue_many({"customer": n} for n in range(600))
    for queue in ("mail", "api"):
        call.using(delay=60, queue=queue).enqueue(customer=1)
        make(queue=queue, run_at=FUTURE)
    claims, looks, executor = Claimer("default", WORKER), claimer(), DjangoExecutor("default")

    with CaptureQueriesContext(connection) as statements:
        for _ in range(10):
            claims.claim(executor.execute, 8)
            looks.note_survey(claims.limited_due, at_once=True)
            while not looks.seconds:
                looks.claim(executor, 8)

    assert len(statements) == 10


def test_many_keys_with_nothing_to_do_hide_none_behind_them():
    Job.objects.bulk_create(
        Job(kind="call", concurrency_key=f"call:{n:04}", run_at=FUTURE) for n in range(1100)
    )
    declare(concurrency=Limit(1, key="customer"))
    due = make(kind="call", concurrency_key="call:zz")
    looks = claimer()

    assert ids(taken(8, by=looks)) == [due.id]
    assert taken(8, by=looks) == []
    assert looks.swept


def test_a_backlog_of_a_key_hides_none_behind_many_keys_with_nothing_to_do():
    """Where much is due that cannot start, keys are passed one by one, for what became due long ago."""
    call = declare(concurrency=Limit(1, key="customer"))
    call.enqueue_many({"customer": "0"} for _ in range(limited_lanes.FEW + 2))
    assert len(taken()) == 1
    Job.objects.bulk_create(
        Job(kind="call", concurrency_key=f"call:{n:04}", run_at=FUTURE) for n in range(1100)
    )
    old = make(kind="call", concurrency_key="call:zz", run_at=AGO)
    looks = claimer()

    found = [taken(8, by=looks)]
    while not found[-1] and not looks.exhausted:  # it says itself that it is not through
        found.append(taken(8, by=looks))

    assert list(map(ids, found)) == [[], [], [old.id]]
    due = make(kind="call", concurrency_key="call:zy")
    assert ids(taken(8, by=looks)) == [due.id]


def test_gates_that_nobody_uses_are_pruned():
    from django_pgjobs import gates  # noqa: PLC0415 -- for this test

    call = declare(concurrency=Limit(1, key="customer"))
    call.enqueue(customer=1)
    assert len(taken()) == 1
    Gate.objects.create(name="key:old", next_at=AGO)

    execute(gates.PRUNE, {"limit": 10})

    assert list(Gate.objects.values_list("name", flat=True)) == ["key:call:1"]


# -------------------------------------------------------------------------------------- queues


@pytest.fixture
def mail_queue(settings):
    settings.PGJOBS = {"QUEUES": {"mail": {"concurrency": 2}}}


@pytest.mark.usefixtures("mail_queue")
def test_no_more_of_a_queue_run_than_its_limit_whatever_they_are():
    call = declare(concurrency=Limit(3, key="customer")).using(queue="mail")
    call.enqueue_many({"customer": 1} for _ in range(3))
    get_job("noop").using(queue="mail").enqueue_many({} for _ in range(3))
    make(queue="mail", priority=9)
    looks = claimer()

    first = taken(by=looks)
    assert len(first) == 2
    assert taken(by=looks) == []
    complete(first[0], by=looks)
    assert len(taken(by=looks)) == 1


@pytest.mark.usefixtures("mail_queue")
def test_the_free_slots_of_a_queue_go_to_its_keys_in_turn():
    call = declare(concurrency=Limit(9, key="customer")).using(queue="mail")
    call.enqueue_many({"customer": n // 3} for n in range(6))

    assert sorted(keys(taken())) == ["call:0", "call:1"]


@pytest.mark.usefixtures("mail_queue")
def test_what_has_no_key_in_a_limited_queue_is_surveyed_too():
    make(queue="mail", run_at=FUTURE)
    make(run_at=FUTURE)
    get_job("noop").using(queue="mail", delay=60, priority=-1).enqueue()
    assert 50 < surveyed() <= 60
    assert 50 < surveyed(queues=["mail"]) <= 60
    assert surveyed(exclude=["mail"]) == surveyed(queues=["default"]) == math.inf

    make(queue="mail", priority=-5)
    assert surveyed() <= 0


@pytest.mark.usefixtures("mail_queue")
def test_the_other_claims_of_a_worker_leave_its_limited_queues_alone():
    mail = make(queue="mail")
    free = make()

    assert drain() == 2
    assert row(mail)["status"] == row(free)["status"] == "done"


def test_a_drain_runs_what_has_limits_one_after_the_other():
    declare(concurrency=Limit(1)).enqueue_many({} for _ in range(3))
    enqueue("noop")

    assert drain() == 4


def test_a_reschedule_moves_a_job_with_a_key_too():
    job = declare(concurrency=Limit(1)).using(delay=60).enqueue()
    assert taken() == []

    job.reschedule(timezone.now() - datetime.timedelta(seconds=1))

    assert ids(taken()) == [job.id]
