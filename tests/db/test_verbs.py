"""retry, cancel and reschedule by hand: on jobs and on any queryset, beside other sessions."""

from __future__ import annotations

import datetime

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, connection, transaction
from django.db.models import BooleanField, Exists, OuterRef
from django.db.models.expressions import RawSQL

from django_pgjobs import InvalidOption
from django_pgjobs.models import Job, Worker
from tests.db.rows import AGO, FUTURE, STATUSES, ids, make, make_worker, row
from tests.db.sessions import blocks_somebody, in_thread
from tests.waiting import eventually

pytestmark = pytest.mark.django_db

VERBS = {
    "retry": (lambda jobs: jobs.retry(), {"failed", "cancelled"}),
    "cancel": (lambda jobs: jobs.cancel(), {"pending", "running"}),
    "reschedule": (lambda jobs: jobs.reschedule(FUTURE), {"pending"}),
}
all_verbs = pytest.mark.parametrize(("verb", "sources"), VERBS.values(), ids=VERBS)


@all_verbs
@pytest.mark.parametrize("status", STATUSES)
def test_a_verb_on_a_job_says_whether_it_did_anything(verb, sources, status):
    job, neighbour = make(status), make(status)
    before = row(neighbour)

    assert verb(job) == (status in sources)

    assert row(neighbour) == before


@all_verbs
def test_a_verb_on_a_queryset_counts_those_it_moved(verb, sources):
    for status in STATUSES:
        make(status)
        make(status)

    assert verb(Job.objects) == 2 * len(sources)


@all_verbs
def test_a_verb_on_nothing_moves_nothing(verb, sources):
    make(min(sources))

    assert verb(Job.objects.none()) == 0
    assert verb(Job.objects.filter(kind="other")) == 0


QUERYSETS = {
    "sliced": lambda jobs: jobs.order_by("-priority", "id")[:2],
    "distinct": lambda jobs: jobs.filter(priority__gt=0).distinct(),
    "distinct on": lambda jobs: jobs.filter(priority__gt=0).order_by("id").distinct("id"),
    "joined by a subquery": lambda jobs: jobs.filter(
        Exists(Worker.objects.filter(pid=OuterRef("priority")))
    ),
    "a union": lambda jobs: jobs.filter(priority=1).union(jobs.filter(priority=2)),
    "values": lambda jobs: jobs.filter(priority__gt=0).values("kind"),
    "only": lambda jobs: jobs.filter(priority__gt=0).only("queue"),
    "locked by the caller": lambda jobs: jobs.filter(priority__gt=0).select_for_update(),
    "ordered": lambda jobs: jobs.filter(priority__gt=0).order_by("run_at"),
}


@all_verbs
@pytest.mark.parametrize("shape", QUERYSETS.values(), ids=QUERYSETS)
def test_a_verb_works_on_a_queryset_of_any_shape(verb, sources, shape):
    status = min(sources - {"running"})
    chosen = [make(status, priority=2), make(status, priority=1)]
    make_worker(pid=1)
    make_worker(pid=2)
    left = make(status, priority=0)
    before = row(left)

    assert verb(shape(Job.objects.all())) == 2

    assert row(left) == before
    assert all(row(job) != before | {"id": job.id} for job in chosen)


def test_a_cancel_request_leaves_a_running_job_to_its_worker():
    job = make("running")

    assert job.cancel() == 1
    first = row(job)
    assert job.cancel() == 1

    assert first["status"] == "running"
    assert first["cancel_requested_at"] is not None
    assert row(job) == first  # a second request changes nothing


def test_a_cancelled_job_that_is_retried_is_no_longer_asked_to_stop():
    job = make("cancelled", cancel_requested_at=AGO)

    job.retry()

    assert row(job)["cancel_requested_at"] is None
    assert row(job)["finished_at"] is None


def test_a_retry_by_hand_is_due_at_once_whatever_its_time_was():
    job = make("failed", run_at=FUTURE)

    job.retry()

    assert ids(Job.objects.due()) == [job.id]


def test_reschedule_to_the_past_makes_a_job_due():
    job = make(run_at=FUTURE)

    job.reschedule(AGO)

    assert ids(Job.objects.due()) == [job.id]


@pytest.mark.parametrize(
    "run_at",
    [
        None,
        "2030-01-01",
        1_700_000_000,
        datetime.date(2030, 1, 1),
        datetime.datetime(2030, 1, 1),  # noqa: DTZ001 -- naive on purpose
        datetime.datetime.max.replace(tzinfo=datetime.UTC),
        datetime.datetime.min.replace(tzinfo=datetime.UTC),
    ],
    ids=repr,
)
def test_reschedule_refuses_a_time_that_the_table_cannot_hold_before_any_sql(
    run_at, django_assert_num_queries
):
    job = make()

    with django_assert_num_queries(0), pytest.raises(InvalidOption, match="run_at must be"):
        Job.objects.filter(pk=job.pk).reschedule(run_at)


@pytest.mark.django_db(transaction=True)
@all_verbs
def test_rows_that_another_transaction_has_locked_are_skipped_and_not_counted(
    verb, sources, other_session
):
    status = min(sources)
    locked, free = make(status), make(status)
    before = row(locked)
    other_session.execute(
        "select from django_pgjobs_job where id = %s for update", [locked.id]
    ).fetchall()
    with connection.cursor() as cursor:
        cursor.execute("set lock_timeout = '1ms'")  # waiting would be an error

    try:
        assert verb(Job.objects) == 1
        assert verb(locked) == 0
    finally:
        connection.close()

    assert row(locked) == before
    assert row(free) != before | {"id": free.id}


GATE = 4711


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("verb", "status", "change"),
    [
        (lambda jobs: jobs.retry(), "failed", "status = 'pending', finished_at = null"),
        (lambda jobs: jobs.cancel(), "pending", "status = 'done', finished_at = now()"),
        (
            lambda jobs: jobs.reschedule(FUTURE),
            "pending",
            "status = 'running', locked_at = now(), locked_by = 8",
        ),
    ],
)
def test_a_row_that_left_the_status_after_the_snapshot_is_not_moved(
    verb, status, change, other_session
):
    job = make(status)
    other_session.execute("select pg_advisory_lock(%s)", [GATE])
    # A queryset that stops inside the verb's statement, between its snapshot and its lock.
    gate = RawSQL("pg_advisory_xact_lock_shared(%s)::text = ''", [GATE], BooleanField())
    jobs = Job.objects.filter(gate, pk=job.pk)

    with in_thread(lambda: verb(jobs)) as moved:
        eventually(lambda: blocks_somebody(other_session))
        other_session.execute(f"update django_pgjobs_job set {change}")  # noqa: S608
        other_session.commit()
        after = row(job)
        other_session.execute("select pg_advisory_unlock(%s)", [GATE])

    assert moved() == 0
    assert row(job) == after


@pytest.mark.django_db(databases=["default", "other"])
def test_a_verb_works_on_the_database_of_its_job():
    job = make("failed")
    twin = Job.objects.using("other").create(
        id=job.id, kind="noop", status="failed", finished_at=AGO
    )

    assert twin.retry() == 1
    assert Job.objects.using("other").failed().count() == 0
    assert row(job)["status"] == "failed"

    assert Job.objects.using("other").cancel() == 1
    assert Job.objects.using("other").get().status == "cancelled"


def test_a_retry_by_hand_bears_absurd_counts():
    absurd = make("failed", attempts=2**31 - 1, max_attempts=2**31 - 1)
    usual = make("failed", attempts=5)

    assert Job.objects.all().retry() == 2

    assert row(absurd)["max_attempts"] == 2**31 - 1
    assert row(usual)["max_attempts"] == 10


def test_a_verb_on_a_table_without_statistics_reads_each_row_a_few_times():
    Job.objects.bulk_create(
        Job(kind="noop", status="failed", attempts=1, finished_at=AGO) for _ in range(800)
    )
    with connection.cursor() as cursor:  # what the planner believes before the first analyze
        cursor.execute("set local enable_hashjoin = off; set local enable_mergejoin = off")
        cursor.execute("set local statement_timeout = '5s'")

    assert Job.objects.failed().filter(priority=0).retry() == 800


@pytest.mark.django_db(transaction=True)
@all_verbs
def test_under_repeatable_read_what_has_changed_meanwhile_is_refused(verb, sources, other_session):
    job = make(min(sources))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("set transaction isolation level repeatable read")
        assert row(job)["priority"] == 0
        other_session.execute("update django_pgjobs_job set priority = 1 where id = %s", [job.pk])
        other_session.commit()
        with pytest.raises(OperationalError, match="could not serialize"):
            verb(job)
        transaction.set_rollback(True)
    assert verb(job) == 1


@pytest.mark.parametrize("on", ["a job", "a queryset"])
def test_each_verb_has_a_twin_for_async_code(on):
    async def act(of, verb, *arguments):
        return await getattr(of, verb)(*arguments)

    for verb, (call, sources) in VERBS.items():
        job, bystander = make(min(sources)), make(min(sources))
        of = job if on == "a job" else Job.objects.filter(pk=job.pk)
        arguments = [FUTURE] if verb == "reschedule" else []
        assert async_to_sync(act)(of, f"a{verb}", *arguments) == 1
        twin = make(min(sources))
        assert call(twin) == 1
        assert row(job)["status"] == row(twin)["status"]
        assert row(bystander)["status"] in sources
        assert async_to_sync(act)(job, "aexplain") == job.explain()
