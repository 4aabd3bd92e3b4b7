"""Hot claims start at marks, which postpone what appears behind them and lose nothing."""

from __future__ import annotations

import math

import pytest
from django.db import connection

from django_pgjobs.claims import MOST_LANES, Claimer
from django_pgjobs.models import Job
from tests.db.plans import parsed
from tests.db.rows import AGO, execute, ids, make, row

pytestmark = pytest.mark.django_db


@pytest.fixture(params=[None, ["default", "mail"]], ids=["all queues", "named queues"])
def claimer(request):
    return Claimer("default", 7, request.param)


def make_hot(claimer):
    """Let it claim a full batch, so that a full claim is not due for a while."""
    first = make(run_at=AGO)
    assert ids(claimer.claim(execute, 1)) == [first.id]
    assert not claimer.exhausted
    assert claimer.seconds_to_full > 0
    return first


def full(claimer):
    claimer._next_full = 0.0


def test_a_hot_claim_goes_on_where_the_last_one_ended(claimer):
    later = [make() for _ in range(3)]
    make_hot(claimer)

    assert ids(claimer.claim(execute, 2)) == ids(later[:2])
    assert ids(claimer.claim(execute, 2)) == ids(later[2:])


def test_a_job_that_appears_behind_the_mark_waits_for_the_next_full_claim(claimer):
    first = make_hot(claimer)
    late = make(run_at=AGO, id=first.id - 1)

    assert claimer.claim(execute, 5) == []
    assert not claimer.exhausted

    full(claimer)
    assert ids(claimer.claim(execute, 5)) == [late.id]
    assert claimer.exhausted


@pytest.mark.parametrize("columns", [{"priority": 5}, {"queue": "mail"}], ids=str)
def test_a_job_in_a_lane_that_is_not_known_waits_for_the_next_full_claim(claimer, columns):
    make_hot(claimer)
    job = make(**columns)

    assert claimer.claim(execute, 5) == []

    full(claimer)
    assert ids(claimer.claim(execute, 5)) == [job.id]


def test_a_full_claim_moves_a_mark_back_to_the_first_due_job(claimer):
    first = make_hot(claimer)
    behind = [make(run_at=AGO, id=first.id - n) for n in (3, 2)]
    full(claimer)
    assert ids(claimer.claim(execute, 1)) == [behind[0].id]

    assert ids(claimer.claim(execute, 1)) == [behind[1].id]


def test_a_worker_that_found_all_there_is_looks_in_full_again_soon(claimer):
    make()

    assert len(claimer.claim(execute, 5)) == 1

    assert claimer.exhausted
    assert claimer.seconds_to_full < 1


def test_marks_of_very_many_lanes_are_forgotten(claimer):
    claimer._marks = {
        (f"queue {n}", 0): ("2000-01-01 00:00:00+00", 0) for n in range(MOST_LANES + 1)
    }
    job = make()
    full(claimer)

    assert ids(claimer.claim(execute, 1)) == [job.id]

    assert list(claimer._marks) == [("default", 0)]


@pytest.mark.parametrize("hot", [True, False], ids=["hot", "full"])
def test_a_claim_settles_what_it_is_given_and_tells_what_was_stale(claimer, hot):
    jobs = [make(run_at=AGO) for _ in range(3)]
    fresh = make()
    done = claimer.claim(execute, 3)
    if not hot:
        full(claimer)
    given = [done[0], done[1], done[2]._replace(id=0)]

    claimed, stale = claimer.settle_and_claim(execute, given, 5)

    assert ids(claimed) == [fresh.id]
    assert stale == [given[2]]
    assert [row(job)["status"] for job in jobs] == ["done", "done", "running"]


def test_a_claim_does_not_settle_for_another_token(claimer):
    job = make(run_at=AGO)
    [claim] = claimer.claim(execute, 1)

    _, stale = claimer.settle_and_claim(execute, [claim._replace(claims=2)], 5)

    assert len(stale) == 1
    assert row(job)["status"] == "running"


@pytest.mark.django_db(transaction=True)
def test_under_an_old_snapshot_a_hot_claim_reads_no_more_after_thousands_of_jobs(
    session, other_session
):
    """Their dead index entries stay as long as the snapshot does, in front of the next job."""
    Job.objects.bulk_create(Job(kind="noop") for _ in range(4_000))
    other_session.execute("set transaction isolation level repeatable read")
    other_session.execute("select from django_pgjobs_job limit 1")
    claimer, done, pages = Claimer("default", 7), [], []

    def execute_and_explain(statement, params):
        with connection.cursor() as cursor:
            cursor.execute("begin")
            cursor.execute(
                f"explain (analyze, buffers, format json) {statement}", {**params, "limit": 1}
            )
            pages.append(parsed(cursor.fetchone()[0]).buffers_of("CTE due"))
            cursor.execute("rollback")
        return session.execute(statement, params)

    for n in range(39):
        measured = n in (3, 38)
        done, _ = claimer.settle_and_claim(
            execute_and_explain if measured else session.execute, done, 100
        )
        assert len(done) == 100
        claimer._next_full = math.inf

    early, late = pages
    assert late < 2 * early
