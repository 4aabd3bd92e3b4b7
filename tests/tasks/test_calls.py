"""Tasks whose arguments do not all have names: their payload is a call."""

from __future__ import annotations

import pytest

from django_pgjobs import (
    InvalidPayload,
    Limit,
    Unique,
    deploy_checks,
    enqueue,
    every,
    get_job,
)
from django_pgjobs.models import Job
from django_pgjobs.tasks import framework, task
from django_pgjobs.testing import drain, perform
from tests.app import tasks
from tests.db.rows import make

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]


def positional(a, /, b):
    return a - b


def spread(*args):
    return args


def spread_to_b(a, *args, b):
    return a, args, b


def stored_payload(result):
    return Job.objects.get(pk=result.id).payload


def test_arguments_without_names_are_stored_as_lists():
    subtract = task(positional)
    assert stored_payload(tasks.collect.enqueue(1, [2], x=3)) == {
        "args": [1, [2]],
        "kwargs": {"x": 3},
    }
    first = subtract.enqueue(5, b=3)
    assert stored_payload(first) == {"args": [5], "kwargs": {"b": 3}}

    drain()

    first.refresh()
    assert first.return_value == 2


NO_CALLS = [{}, {"a": 1}, {"args": [1], "kwargs": {}, "a": 1}, {"args": 3, "kwargs": []}]


@pytest.mark.parametrize("payload", NO_CALLS)
@pytest.mark.parametrize("name", ["collect", "collect_with_context"])
def test_a_payload_that_is_no_call_fails_at_once_with_advice(name, payload):
    job = make(kind=f"tests.app.tasks.{name}", payload=payload)
    drain()
    job.refresh_from_db()
    assert (job.status, job.attempts) == ("failed", 1)
    assert job.last_error.startswith("django_pgjobs.exceptions.InvalidPayload: The payload of ")
    assert "must be {'args': [...], 'kwargs': {...}}" in job.last_error


@pytest.mark.parametrize("payload", NO_CALLS)
def test_the_result_of_what_is_no_call_shows_its_payload_as_arguments(payload):
    result = tasks.collect.get_result(str(make(kind="tests.app.tasks.collect", payload=payload).pk))
    assert (result.args, result.kwargs) == ([], payload)


CALLS_THAT_DO_NOT_FIT = [
    ("demand", (), {}, r"fit tests\.app\.tasks\.demand\(a, \*args, k\), got: missing .* 'a'"),
    ("demand", (1,), {}, "missing a required (keyword-only )?argument: 'k'"),
    ("demand", (1,), {"a": 1, "k": 1}, "multiple values for argument 'a'"),
    ("demand", (1,), {"k": 1, "z": 3}, "unexpected keyword argument 'z'"),
    ("subtract", (), {}, "missing a required (positional-only )?argument: 'a'"),
    ("subtract", (), {"a": 2}, "'a'"),
    ("subtract", (1, 2, 3), {}, "too many positional arguments"),
    ("collect_with_context", (), {"context": 1}, "multiple values for argument 'context'"),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "fault"), CALLS_THAT_DO_NOT_FIT)
def test_a_call_without_names_that_does_not_fit_is_refused_before_any_sql(
    name, args, kwargs, fault, django_assert_num_queries
):
    chosen = getattr(tasks, name)
    payload = {"args": args, "kwargs": kwargs}
    for call in (
        lambda: chosen.enqueue(*args, **kwargs),
        lambda: enqueue(f"tests.app.tasks.{name}", **payload),
        lambda: perform(chosen, *args, **kwargs),
    ):
        with django_assert_num_queries(0), pytest.raises(InvalidPayload, match=fault):
            call()
    with pytest.raises(InvalidPayload, match=fault):
        get_job(f"tests.app.tasks.{name}").enqueue_many([payload])


def test_a_schedule_of_a_call_that_does_not_fit_is_refused_where_it_is_declared():
    task(schedule=every(seconds=1, payload={"args": [1], "kwargs": {"b": 2}}))(positional)
    with pytest.raises(InvalidPayload, match="missing"):
        task(schedule=every(seconds=1, payload={"args": [], "kwargs": {"b": 2}}))(spread_to_b)


def test_the_checks_of_a_deploy_know_calls_without_names():
    good = {"args": [1], "kwargs": {}}
    make(kind="tests.app.tasks.collect", payload=good)
    assert deploy_checks.misfits("default") == []
    make(kind="tests.app.tasks.collect", payload={"a": 1})
    assert [misfit.problem for misfit in deploy_checks.misfits("default")] == ["payload"]


@pytest.mark.parametrize("payload", NO_CALLS)
def test_a_payload_that_is_no_call_is_not_enqueued_by_name(payload, django_assert_num_queries):
    with django_assert_num_queries(0), pytest.raises(InvalidPayload):
        enqueue("tests.app.tasks.collect", **payload)


def test_a_call_without_names_that_fits_is_run():
    fitting = [
        tasks.demand.enqueue(1, 2, k=3),
        tasks.subtract.enqueue(5),
        tasks.collect_with_context.enqueue(1, a=2),
    ]
    drain()
    values = [chosen.task.get_result(chosen.id).return_value for chosen in fitting]
    assert values == [[1, [2], 3], 4, [1, [1], {"a": 2}]]


@pytest.mark.parametrize("function", [positional, spread])
@pytest.mark.parametrize(
    "options", [{"concurrency": Limit(1, key="a")}, {"unique": Unique(key="args")}]
)
def test_a_key_names_no_argument_where_not_all_have_names(function, options):
    with pytest.raises(framework.InvalidTask, match="have names") as error:
        task(**options)(function)
    assert "list[Any]" not in str(error.value)
    with pytest.raises(framework.InvalidTask, match="have names"):
        task(function).using(unique=Unique(key="kwargs"))


def test_a_key_may_be_made_of_arguments_that_have_no_names():
    counted = task(concurrency=Limit(1, key=lambda payload: payload["args"][0]))(spread)
    assert Job.objects.get(pk=counted.enqueue(7).id).concurrency_key
