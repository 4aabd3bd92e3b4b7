"""What projects test with, where jobs are tasks."""

from __future__ import annotations

import datetime
import logging

import pytest

from django_pgjobs import InvalidOption, InvalidPayload
from django_pgjobs.models import Job
from django_pgjobs.tasks import framework, task
from django_pgjobs.testing import assert_enqueued, drain, make_due, perform, refute_enqueued
from tests.app import tasks
from tests.db.rows import make

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]


def tell_name():
    return "new"


def tell(context, a):
    result, job = context.task_result, context.job_context.job
    return [result.id, str(result.status), result.enqueued_at == job.created_at, result.kwargs, a]


@pytest.mark.parametrize(
    "performed", [tasks.tell_attempt, tasks.tell_attempt_async], ids=["sync", "async"]
)
def test_a_task_that_takes_a_context_is_performed_without_a_row(performed):
    assert perform(performed, 3) == ["0", 1, 3]
    assert not Job.objects.exists()


def test_the_context_of_a_performed_task_tells_what_that_of_a_job_does():
    assert perform(task(tell, takes_context=True), a=1) == ["0", "RUNNING", True, {"a": 1}, 1]


def test_a_task_whose_arguments_have_no_names_is_performed():
    assert perform(tasks.collect, 1, [2], b=3) == [[1, [2]], {"b": 3}]


def test_the_arguments_of_a_task_pass_as_its_own_enqueue_passes_them():
    assert perform(tasks.give_back, (1, b"text")) == [1, "text"]
    with pytest.raises(TypeError):
        perform(tasks.give_back, [datetime.date(2026, 1, 2)])
    with pytest.raises(InvalidPayload, match="missing 'a'"):
        perform(tasks.add_up)


def test_arguments_that_are_nested_too_deep_are_refused_as_by_its_own_enqueue():
    deep = []
    deep.append(deep)
    with pytest.raises(InvalidPayload, match="deep"):
        perform(tasks.give_back, deep)


def test_a_performed_task_is_nobody_elses_news(caplog):
    caplog.set_level(logging.DEBUG, "django_pgjobs")
    signals = [framework.signals.task_started, framework.signals.task_finished]
    told = []

    def hear(**about: object) -> None:
        told.append(about)

    for signal in signals:
        signal.connect(hear)
    try:
        perform(tasks.add_up, 1)
        with pytest.raises(ValueError, match="no"):
            perform(tasks.fail)
    finally:
        for signal in signals:
            signal.disconnect(hear)

    assert told == []
    assert not [record for record in caplog.records if record.name.startswith("django_pgjobs")]


def test_a_result_stands_for_its_job():
    delayed = tasks.add_up.using(run_after=datetime.timedelta(hours=1))
    first, *others = [delayed.enqueue(n) for n in range(3)]

    assert make_due(first) == 1
    assert drain() == 1
    assert make_due([first, *others]) == 2
    assert make_due([Job.objects.get(pk=first.id)]) == 0


def test_the_result_of_another_backend_is_no_job():
    result = tasks.add_up.enqueue(1)
    framework.set_attributes(result, id="ab12")

    with pytest.raises(TypeError, match="jobs must be a job"):
        make_due(result)


@pytest.mark.parametrize("check", [assert_enqueued, refute_enqueued])
@pytest.mark.parametrize("chosen", [tasks.add_up, "tests.app.tasks.add_up"])
def test_an_argument_that_a_task_has_not_is_refused(check, chosen):
    tasks.add_up.enqueue(1)
    with pytest.raises(InvalidOption, match="'aa'"):
        check(chosen, payload={"aa": 1})


def test_the_payload_of_arguments_without_names_is_known():
    tasks.collect.enqueue(1, a=2)
    assert_enqueued(tasks.collect, payload={"args": [1], "kwargs": {"a": 2}})
    with pytest.raises(InvalidOption, match="'a'"):
        refute_enqueued(tasks.collect, payload={"a": 2})


def test_a_task_stands_for_its_earlier_names_too():
    renamed = task(tell_name, aliases=["tests.app.tasks.tell_old_name"])
    older = make(kind="tests.app.tasks.tell_old_name", payload={})
    assert assert_enqueued(renamed) == older
    assert drain(kinds=renamed) == 1
