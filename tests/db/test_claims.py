"""Who gets which job, in which order, and never two of one."""

from __future__ import annotations

import datetime
import threading

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_pgjobs import enqueue, get_job
from django_pgjobs.claims import Claimer, release, release_orphans
from django_pgjobs.models import Job, Queue
from django_pgjobs.sessions import Session
from tests.db.rows import AGO, FUTURE, claim_of, claimed, execute, ids, make, make_worker, row

pytestmark = pytest.mark.django_db

SERVED = [{}, {"queues": ["default", "mail", "b"]}]
all_ways = pytest.mark.parametrize("served", SERVED, ids=["all queues", "named queues"])


def enqueue_in(queue):
    return get_job("noop").using(queue=queue).enqueue()


def at(minute):
    return AGO.replace(minute=minute)


@all_ways
def test_jobs_come_by_priority_then_time_then_id(served):
    late, early = make(run_at=at(2)), make(run_at=at(1))
    low, high = make(priority=-5, run_at=at(0)), make(priority=5, run_at=at(3))
    twins = [make(run_at=at(4)) for _ in range(3)]
    expected = ids([high, early, late, *twins, low])

    assert ids(claimed(**served)) == expected


@all_ways
def test_one_at_a_time_they_come_in_the_same_order(served):
    jobs = [make(priority=p, run_at=at(m)) for p, m in [(0, 5), (9, 7), (0, 1), (9, 2), (-9, 0)]]
    expected = ids(sorted(jobs, key=lambda job: (-job.priority, job.run_at)))

    one_by_one = [ids(claimed(1, **served)) for _ in jobs]

    assert one_by_one == [[job_id] for job_id in expected]


@all_ways
def test_among_queues_a_higher_priority_comes_first_wherever_it_is(served):
    mail = make(queue="mail", priority=1, run_at=at(5))
    default = make(priority=0, run_at=at(1))
    b = make(queue="b", priority=2, run_at=at(9))

    assert [ids(claimed(1, **served)) for _ in range(3)] == [[b.id], [mail.id], [default.id]]


@all_ways
def test_among_queues_of_equal_priority_the_oldest_head_comes_first(served):
    make(run_at=at(2))
    oldest = make(queue="mail", run_at=at(1))

    assert ids(claimed(1, **served)) == [oldest.id]


def test_a_worker_serves_the_queues_that_it_was_told_and_no_other():
    make()
    mail, b = make(queue="mail"), make(queue="b")

    assert ids(claimed(queues=["mail", "b", "empty"])) == ids([mail, b])


def test_a_worker_of_all_queues_leaves_those_that_it_excludes():
    default, b = make(), make(queue="b")
    make(queue="mail")

    assert ids(claimed(exclude=["mail", "none"])) == ids([default, b])
    assert claimed(exclude=["mail"]) == []


@all_ways
def test_a_paused_queue_gives_nothing_until_it_is_resumed(served):
    mail, default = make(queue="mail", priority=9), make()
    pause = Queue.objects.create(name="mail", paused_at=timezone.now())
    Queue.objects.create(name="default")  # a row alone is no pause

    assert ids(claimed(**served)) == [default.id]

    pause.paused_at = None
    pause.save()
    assert ids(claimed(**served)) == [mail.id]


@all_ways
def test_a_job_of_the_future_is_not_claimed_however_high_its_priority(served):
    make(run_at=FUTURE, priority=100)
    make(run_at=FUTURE, queue="mail")
    due = make(priority=-100)

    assert ids(claimed(**served)) == [due.id]
    assert claimed(**served) == []


@all_ways
def test_a_job_enqueued_in_this_transaction_is_due_at_once(served):
    with connection.cursor() as cursor:
        cursor.execute("select pg_sleep(0.01)")  # now() would stand still before this
    job = enqueue("noop")

    assert ids(claimed(**served)) == [job.id]


@pytest.mark.parametrize(
    "name", ["a'b", 'a"b', "%s", "%(limit)s", "a;drop", "ä", "日本", "A", "$1", "a\\"]
)
def test_a_queue_with_an_odd_name_is_a_queue_like_any_other(name):
    job = enqueue_in(name)
    make(queue="a")

    assert ids(claimed(queues=[name])) == [job.id]
    assert job.queue == name

    again = enqueue_in(name)
    assert ids(claimed(exclude=["a"])) == [again.id]
    Queue.objects.create(name=name, paused_at=timezone.now())
    enqueue_in(name)
    assert claimed(queues=[name]) == []
    assert claimed(exclude=["a"]) == []


def test_a_claim_tells_what_the_row_says():
    job = make(
        kind="add",
        queue="q",
        payload={"a": 1},
        attempts=3,
        attempts_before=2,
        claims=8,
        max_attempts=9,
        run_at=timezone.now() - datetime.timedelta(hours=1),
    )

    [claim] = claimed(worker=42)

    after = row(job)
    assert claim._replace(waited=0.0) == claim_of(Job.objects.get())
    assert 3_600 <= claim.waited < 3_900
    assert (claim.attempts, claim.claims, claim.attempt) == (4, 9, 2)
    assert (after["locked_by"], after["attempts"], after["claims"]) == (42, 4, 9)
    assert after["locked_at"] == after["attempted_at"]


INDEXES = ["indexscan", "indexonlyscan", "bitmapscan"]
# Nothing but loops, which run what is inside them for every row outside.
NESTED_LOOPS = ["hashjoin", "mergejoin", "hashagg", "sort", "material", "memoize", *INDEXES]


@all_ways
@pytest.mark.parametrize("limit", [1, 7, 30])
@pytest.mark.parametrize(
    "planner",
    [[], NESTED_LOOPS, INDEXES],
    ids=["free", "nested loops", "no index"],
)
@pytest.mark.django_db(transaction=True)
def test_as_many_rows_are_locked_as_are_claimed(served, limit, planner, other_session):
    Job.objects.bulk_create(
        Job(kind="noop", queue=queue, priority=priority)
        for queue in ("default", "mail", "b")
        for priority in (0, 1)
        for _ in range(10)
    )
    for setting in planner:
        other_session.execute(f"set enable_{setting} = off")
    claimer = Claimer("default", 7, **served)

    mine = claimer.claim(lambda sql, params: other_session.execute(sql, params).fetchall(), limit)

    assert len(mine) == limit
    with transaction.atomic():
        unlocked = len(Job.objects.select_for_update(skip_locked=True))
    assert unlocked == 60 - limit


@all_ways
@pytest.mark.django_db(transaction=True)
def test_what_one_session_is_claiming_another_passes_over_without_waiting(
    served, session, other_session
):
    jobs = [make() for _ in range(6)]
    claimer = Claimer("default", 7, **served)
    first = claimer.claim(lambda sql, params: other_session.execute(sql, params).fetchall(), 3)
    session.execute("set lock_timeout = '1ms'", {})  # waiting would be an error

    second = Claimer("default", 8, **served).claim(session.execute, 10)

    other_session.commit()
    assert ids(first) == ids(jobs[:3])
    assert ids(second) == ids(jobs[3:])
    assert list(Job.objects.order_by("id").values_list("locked_by", flat=True)) == [7] * 3 + [8] * 3


@pytest.mark.django_db(transaction=True)
def test_many_sessions_claim_every_job_exactly_once():
    Job.objects.bulk_create(
        Job(kind="noop", queue=f"q{n % 3}", priority=n % 2) for n in range(2000)
    )
    claims, start = [], threading.Barrier(6)
    claimers = [Claimer("default", worker) for worker in range(6)]

    def claim_all(claimer):
        session = Session("default")
        start.wait(timeout=30)
        while batch := claimer.claim(session.execute, 17):
            claims.extend(ids(batch))
        session.close()

    threads = [threading.Thread(target=claim_all, args=[claimer]) for claimer in claimers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert len(claims) == 2000
    assert len(set(claims)) == 2000
    assert not Job.objects.exclude(claims=1, attempts=1, status="running").exists()


def test_a_released_job_is_claimed_again_with_another_token():
    make()
    [first] = claimed()

    assert release(execute, 7, [first]) == []

    [second] = claimed(worker=8)
    assert (second.attempts, second.claims) == (1, 2)
    assert release(execute, 7, [first]) == []  # the old token gives nothing back
    assert Job.objects.get().locked_by == 8


@pytest.mark.django_db(transaction=True)
def test_a_release_skips_a_locked_row_and_says_so(other_session):
    for _ in range(3):
        make()
    claims = claimed()
    other_session.execute(
        "select from django_pgjobs_job where id = %s for update", [claims[1].id]
    ).fetchall()

    assert release(execute, 7, claims) == [claims[1]]

    assert ids(Job.objects.running()) == [claims[1].id]
    other_session.rollback()
    assert release(execute, 7, claims) == []
    assert Job.objects.pending().filter(attempts=0, claims=1).count() == 3


def test_orphans_are_the_rows_that_a_worker_does_not_know_that_it_has():
    for _ in range(4):
        make()
    held = claimed(2)
    orphans = claimed(1)
    others = claimed(worker=8)

    assert release_orphans(execute, 7, held) == 1

    assert ids(Job.objects.pending()) == ids(orphans)
    assert ids(Job.objects.filter(locked_by=7).order_by("id")) == ids(held)
    assert ids(Job.objects.filter(locked_by=8)) == ids(others)


def test_a_row_held_under_an_older_token_is_an_orphan_too():
    make()
    [old] = claimed()
    release(execute, 7, [old])
    claimed()

    assert release_orphans(execute, 7, [old]) == 1


@all_ways
def test_a_worker_whose_death_is_recorded_claims_nothing(served):
    job = make()
    make_worker(id=7, died_at=AGO)

    assert claimed(**served) == []
    assert ids(claimed(worker=8, **served)) == [job.id]


@all_ways
@pytest.mark.parametrize("column", ["attempts", "claims", "max_attempts", "attempts_before"])
def test_a_row_with_an_absurd_count_stops_no_claim(served, column):
    absurd = make(**{column: 2**31 - 1}, run_at=AGO)
    good = make()

    assert ids(claimed(**served)) == [absurd.id, good.id]

    assert row(absurd)["attempts"] >= 1
    assert row(absurd)["claims"] >= 1


@pytest.mark.parametrize("give_back", [release, release_orphans])
def test_a_row_whose_attempts_were_set_to_0_can_be_given_back(give_back):
    job = make("running", attempts=0)
    held = [claim_of(job)] if give_back is release else []

    give_back(execute, 7, held)

    assert row(job)["status"] == "pending"
    assert row(job)["attempts"] == 0


@pytest.mark.parametrize("full", [True, False], ids=["full", "hot"])
def test_the_order_does_not_depend_on_how_the_server_writes_times(full):
    claimer = Claimer("default", make_worker().id)
    if not full:
        make(run_at=AGO)
        assert len(claimer.claim(execute, 1)) == 1, "now it has a mark"
    october, november = AGO.replace(month=10, day=10), AGO.replace(month=11, day=2)
    expected = ids([make(run_at=october), make(run_at=november)])
    execute("set local datestyle to 'SQL, DMY'", {})
    assert ids(claimer.claim(execute, 2)) == expected
