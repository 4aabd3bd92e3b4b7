"""The table: defaults for plain SQL, impossible states refused, and the named querysets."""

from __future__ import annotations

from itertools import product

import pytest
from django.db import DataError, IntegrityError, connection, transaction
from django.utils import timezone

from django_pgjobs.models import Job
from tests.db.rows import AGO, FUTURE, STATUSES, claimed, ids, make, row

pytestmark = pytest.mark.django_db

TABLE = Job._meta.db_table


def insert(**values):
    """Insert by plain SQL: each value is an SQL expression."""
    values = {"kind": "'add'", "payload": "'{}'", **values}
    with connection.cursor() as cursor:
        cursor.execute(
            f"insert into {TABLE} ({', '.join(values)}) values ({', '.join(values.values())}) "  # noqa: S608
            "returning id"
        )
        return cursor.fetchone()[0]


def test_a_plain_insert_of_kind_and_payload_is_a_whole_job():
    before = timezone.now()
    job = Job.objects.get(pk=insert(payload="jsonb_build_object('order_id', 1)"))

    assert row(job) == {
        "id": job.id,
        "kind": "add",
        "queue": "default",
        "payload": {"order_id": 1},
        "status": "pending",
        "priority": 0,
        "run_at": job.run_at,
        "attempts": 0,
        "max_attempts": 5,
        "attempts_before": 0,
        "claims": 0,
        "locked_at": None,
        "locked_by": None,
        "last_error": "",
        "errors": [],
        "result": None,
        "created_at": job.created_at,
        "attempted_at": None,
        "finished_at": None,
        "unique_key": None,
        "concurrency_key": None,
        "cancel_requested_at": None,
        "subject_type": None,
        "subject_id": None,
        "meta": {},
    }
    assert job.run_at == job.created_at
    assert abs((job.run_at - before).total_seconds()) < 60
    assert [claim.id for claim in claimed()] == [job.id]


def test_a_kind_alone_is_a_whole_job():
    with connection.cursor() as cursor:
        cursor.execute(f"insert into {TABLE} (kind) values ('noop')")  # noqa: S608

    assert Job.objects.get().payload == {}


NOW = "statement_timestamp()"
IMPOSSIBLE = {
    "a status in capitals": {"status": "'PENDING'"},
    "priority above": {"priority": "101"},
    "priority below": {"priority": "-101"},
    "run_at in the year 20000": {"run_at": "'20000-01-01 00:00Z'"},
    "run_at a second too late": {"run_at": "'9999-12-31 00:00:01Z'"},
    "run_at on the first day": {"run_at": "'0001-01-01 23:59:59Z'"},
    "run_at before Christ": {"run_at": "'0044-03-15 00:00Z BC'"},
    "negative attempts": {"attempts": "-1"},
    "negative attempts before": {"attempts_before": "-1"},
    "negative claims": {"claims": "-1"},
    "no attempt allowed": {"max_attempts": "0"},
    "an empty kind": {"kind": "''"},
    "an empty queue": {"queue": "''"},
    "an empty concurrency key": {"concurrency_key": "''"},
    "a payload that is a list": {"payload": "'[]'"},
    "a payload that is null in JSON": {"payload": "'null'"},
    "a payload that is a number": {"payload": "'1'"},
    "meta that is text": {"meta": "'\"x\"'"},
    "errors that are an object": {"errors": "'{}'"},
}
TIMES = {  # with what else a row needs that has one
    "run_at": {},
    "created_at": {},
    "attempted_at": {},
    "cancel_requested_at": {},
    "locked_at": {"status": "'running'", "locked_by": "1"},
    "finished_at": {"status": "'done'"},
}
NULL = ["kind", "queue", "payload", "status", "priority", "run_at", "attempts", "max_attempts"]
NULL += ["attempts_before", "claims", "last_error", "errors", "created_at", "meta"]
TOO_LONG = {"kind": 201, "queue": 64, "unique_key": 101, "concurrency_key": 201}


@pytest.mark.parametrize("values", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_state_cannot_be_stored(values):
    with pytest.raises(IntegrityError, match="violates check constraint"), transaction.atomic():
        insert(**values)


POSSIBLE = {  # whether locked_at, locked_by and finished_at are set
    (False, False, False): {"pending", "blocked"},
    (True, True, False): {"running"},
    (False, False, True): {"done", "failed", "cancelled"},
}


@pytest.mark.parametrize("columns", list(product([False, True], repeat=3)), ids=str)
@pytest.mark.parametrize("status", [*STATUSES, "parked"])
def test_a_row_can_have_the_status_that_its_times_say_and_no_other(status, columns):
    locked_at, locked_by, finished_at = columns
    values = {"locked_at": NOW} if locked_at else {}
    values |= {"locked_by": "1"} if locked_by else {}
    values |= {"finished_at": NOW} if finished_at else {}
    if status in POSSIBLE.get(columns, ()):
        assert insert(status=f"'{status}'", **values)
    else:
        with pytest.raises(IntegrityError, match="pgjobs_job_status"), transaction.atomic():
            insert(status=f"'{status}'", **values)


@pytest.mark.parametrize("column", TIMES)
@pytest.mark.parametrize("time", ["infinity", "-infinity", "0044-03-15 00:00Z BC", "20000-01-01Z"])
def test_a_time_that_python_cannot_read_cannot_be_stored(column, time):
    with pytest.raises(IntegrityError, match="pgjobs_job_times"), transaction.atomic():
        insert(**{column: f"'{time}'"}, **TIMES[column])


@pytest.mark.parametrize("column", NULL)
def test_a_required_column_cannot_be_null(column):
    with pytest.raises(IntegrityError, match="not-null"), transaction.atomic():
        insert(**{column: "null"})


@pytest.mark.parametrize(("column", "length"), TOO_LONG.items())
def test_a_name_of_the_longest_length_fits_and_one_more_does_not(column, length):
    insert(**{column: f"repeat('x', {length - 1})"})
    with pytest.raises(DataError, match="too long"), transaction.atomic():
        insert(**{column: f"repeat('x', {length})"})


@pytest.mark.parametrize(
    "values",
    [
        {"priority": "100"},
        {"priority": "-100"},
        {"run_at": "'0001-01-02 00:00Z'"},
        {"run_at": "'9999-12-31 00:00Z'"},
        {"run_at": "'1970-01-01 00:00Z'"},
        {"max_attempts": "1"},
        {"status": "'blocked'"},
    ],
)
def test_the_limits_themselves_can_be_stored_and_read(values):
    job = Job.objects.get(pk=insert(**values))

    assert str(job)
    assert job.run_at.isoformat()


def test_a_number_that_python_cannot_hold_is_stored_as_it_is_and_does_not_stop_a_claim():
    bad = insert(payload="'{\"a\": 1e400}'")
    good = insert()

    assert [claim.id for claim in claimed()] == [bad, good]


def test_one_unique_key_is_held_by_one_job():
    insert(unique_key="'k'")
    insert(unique_key="null")
    insert(unique_key="null")

    with pytest.raises(IntegrityError, match="pgjobs_job_unique_key"), transaction.atomic():
        insert(unique_key="'k'")


@pytest.mark.parametrize("status", [status for status in STATUSES if status != "blocked"])
def test_the_queryset_of_a_status_finds_the_jobs_of_that_status_alone(status):
    jobs = {each: make(each) for each in STATUSES}

    assert ids(getattr(Job.objects.all(), status)()) == [jobs[status].id]
    assert ids(getattr(Job.objects, status)()) == [jobs[status].id]


def test_due_and_delayed_divide_the_pending_jobs_by_the_clock():
    due, delayed = make(run_at=AGO), make(run_at=FUTURE)
    fresh = make()  # in the same transaction
    make("done", run_at=AGO)
    make("failed", run_at=FUTURE)

    assert ids(Job.objects.due().order_by("id")) == [due.id, fresh.id]
    assert ids(Job.objects.delayed()) == [delayed.id]


def test_every_index_beside_the_primary_key_is_partial():
    with connection.cursor() as cursor:
        cursor.execute(
            "select indexrelid::regclass::text from pg_index "
            "where indrelid = %s::regclass and indpred is null",
            [TABLE],
        )
        assert cursor.fetchall() == [(f"{TABLE}_pkey",)]


def test_autovacuum_does_not_wait_for_a_share_of_the_history():
    with connection.cursor() as cursor:
        cursor.execute("select reloptions from pg_class where oid = %s::regclass", [TABLE])
        (options,) = cursor.fetchone()

    assert "autovacuum_vacuum_scale_factor=0.01" in options
    assert "autovacuum_vacuum_cost_delay=0" in options
