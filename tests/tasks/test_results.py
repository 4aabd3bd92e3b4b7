"""Results tell what the row says: of every attempt, by every status."""

from __future__ import annotations

import datetime

import pytest

from django_pgjobs import Snooze, enqueue
from django_pgjobs.exceptions import WorkerLost
from django_pgjobs.models import Job
from django_pgjobs.tasks import PgJobsTaskContext, framework, task
from django_pgjobs.testing import drain
from tests.app import tasks
from tests.db.rows import AGO, make, row

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]

Status = framework.TaskResultStatus


def snoozed():
    raise Snooze(3_600)


def give_back_all(context, *args, **kwargs):
    return [context.attempt, list(args), kwargs]


async def give_back_all_async(context, *args, **kwargs):
    return give_back_all(context, *args, **kwargs)


def progressing(context):
    context.job_context.progress(0.5, "half")


KEYS = [{1: 2}, [{"a": [{None: 1}]}], {"a": {1.5: 2}}, ({True: 1},)]


def give_back_odd_keys(n):
    return KEYS[n]


def give_back_bytes():
    return {b"a": [b"b"]}


async def give_back_odd_keys_async(n):
    return KEYS[n]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("pending", Status.READY),
        ("blocked", Status.READY),
        ("running", Status.RUNNING),
        ("done", Status.SUCCESSFUL),
        ("failed", Status.FAILED),
        ("cancelled", Status.FAILED),
    ],
)
def test_each_status_is_one_of_the_framework(status, said):
    job = make(status, kind="tests.app.tasks.add_up", payload={"a": 1})
    assert tasks.add_up.get_result(str(job.pk)).status == said


def test_a_task_that_succeeded_says_what_it_returned_and_when():
    result = tasks.add_up.enqueue(1, b=2)
    assert (result.status, result.attempts, result.worker_ids) == (Status.READY, 0, [])
    assert result.started_at is result.finished_at is result.last_attempted_at is None

    drain()
    result.refresh()

    assert (result.status, result.return_value, result.errors) == (Status.SUCCESSFUL, 3, [])
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.started_at == result.last_attempted_at
    assert result.attempts == len(result.worker_ids) == 1


def test_the_workers_of_all_attempts_are_named_and_the_first_start_is_kept():
    result = tasks.fail_twice.enqueue()

    drain()
    result.refresh()

    assert result.return_value == result.worker_ids
    assert result.attempts == 3
    assert [error.exception_class_path for error in result.errors] == [
        "django_pgjobs.exceptions.Retry"
    ] * 2
    assert result.started_at < result.last_attempted_at
    entries = Job.objects.get().errors
    assert result.started_at == datetime.datetime.fromisoformat(entries[0]["started_at"])


def test_every_failure_is_told_with_its_class_and_traceback():
    result = tasks.fail.using(max_attempts=1).enqueue("why")

    drain()
    result.refresh()

    [error] = result.errors
    assert error.exception_class is ValueError
    assert error.traceback.endswith("ValueError: why\n")
    assert result.status == Status.FAILED
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_a_task_that_waits_for_another_attempt_is_ready_and_tells_of_its_error():
    result = tasks.try_twice.enqueue()
    drain()
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (Status.READY, 1, 1)
    assert result.errors[0].exception_class is KeyError


def test_what_cannot_be_returned_is_a_type_error():
    result = tasks.give_back_nothing_storable.using(max_attempts=1).enqueue()
    drain()
    result.refresh()
    assert result.status == Status.FAILED
    assert result.errors[0].exception_class is TypeError
    assert "Unsupported type" in result.errors[0].traceback


def test_a_lost_worker_is_an_exception_class_too():
    entry = {
        "attempt": 1,
        "error": "WorkerLost",
        "message": "It died.",
        "traceback": "",
        "worker": "h:1 #5",
    }
    job = make("failed", kind="tests.app.tasks.add_up", payload={"a": 1}, errors=[entry])
    result = tasks.add_up.get_result(str(job.pk))
    assert result.errors[0].exception_class is WorkerLost
    assert result.errors[0].traceback == "It died."
    assert result.worker_ids == ["5"]


def test_a_row_that_tells_little_still_has_a_result():
    errors = [{"attempt": 30}, "text", {"attempt": 99, "worker": None}]
    job = make(
        "done",
        kind="tests.app.tasks.add_up",
        payload={"$type": "nonsense"},
        attempts=31,
        errors=errors,
        meta={"task": 7},
    )
    result = tasks.add_up.get_result(str(job.pk))
    assert result.attempts == 31
    assert result.started_at == AGO


@pytest.mark.parametrize(
    "note",
    [
        {"args": "x"},
        {"args": None},
        {"args": -7},
        {"backend": ["second"]},
        *({"run_after": value} for value in ("zz", 1e300, [], "", {"a": 1})),
    ],
)
def test_a_forged_note_is_none(note):
    errors = [{"attempt": 1, "started_at": moment} for moment in ("zz", 5, None)]
    kind = "tests.app.tasks.add_up"
    job = make("failed", kind=kind, payload={"a": 1}, meta={"task": note}, errors=errors)
    result = tasks.add_up.get_result(str(job.pk))
    assert (result.args, result.kwargs) == ([], {"a": 1})
    assert (result.backend, result.task.run_after) == ("default", None)
    assert result.started_at == AGO


def test_a_payload_that_reads_as_another_value_is_shown_as_it_is():
    payload = {"$type": "date", "value": "2020-01-01"}
    job = make(kind="tests.app.tasks.add_up", payload=payload)
    assert tasks.add_up.get_result(str(job.pk)).kwargs == payload


def test_an_attempt_that_runs_knows_its_worker():
    result = tasks.tell_attempt.enqueue(5)
    drain()
    result.refresh()
    assert result.return_value == [result.id, 1, 5]


def test_async_tasks_get_their_context_too():
    result = tasks.tell_attempt_async.enqueue(5)
    drain()
    result.refresh()
    assert result.return_value == [result.id, 1, 5]


@pytest.mark.parametrize("function", [give_back_all, give_back_all_async])
def test_arguments_without_names_come_after_the_context(function):
    result = task(takes_context=True)(function).enqueue(5, 6, x=7)
    drain()
    result.refresh()
    assert result.return_value == [1, [5, 6], {"x": 7}]


def test_the_context_reaches_that_of_the_job():
    result = task(takes_context=True)(progressing).enqueue()
    drain()
    assert Job.objects.get(pk=result.id).meta["progress"]["text"] == "half"
    assert issubclass(PgJobsTaskContext, framework.TaskContext)


def test_a_snoozed_task_has_had_no_attempt_and_yet_was_started():
    result = task(snoozed).enqueue()
    drain()
    result.refresh()
    assert (result.status, result.attempts, result.errors) == (Status.READY, 0, [])
    assert result.started_at


def test_tasks_and_jobs_share_a_table_and_a_worker():
    plain, result = enqueue("add", a=1, b=2), tasks.add_up.enqueue(1, 2)
    assert drain() == 2
    assert row(plain)["result"] == Job.objects.get(pk=result.id).result == 3
    assert row(plain)["meta"] == {}


def test_a_result_is_read_in_one_query(django_assert_num_queries):
    result = tasks.add_up.enqueue(1)
    with django_assert_num_queries(1):
        result.refresh()


@pytest.mark.parametrize("function", [give_back_odd_keys, give_back_odd_keys_async])
@pytest.mark.parametrize("n", range(len(KEYS)))
def test_a_return_value_with_keys_that_are_no_text_fails_the_attempt(function, n):
    result = task(function).enqueue(n)

    drain()
    result.refresh()

    assert (result.status, result.errors[0].exception_class) == (Status.READY, TypeError)
    assert "must be text" in result.errors[0].traceback


def test_a_return_value_with_keys_of_bytes_is_what_the_framework_makes_of_it():
    result = task(give_back_bytes).enqueue()
    drain()
    result.refresh()
    assert result.return_value == {"a": ["b"]}
