"""The framework's three signals and its log."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils.log import RequireDebugTrue

from django_pgjobs import Discard, JobCancelled, Unique, execution
from django_pgjobs.models import Job
from django_pgjobs.tasks import PgJobsBackend, framework, results, task
from django_pgjobs.testing import drain
from tests.app import tasks

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]

Status = framework.TaskResultStatus
NAMES = ("task_enqueued", "task_started", "task_finished")


def cancelled():
    raise JobCancelled


def discarded():
    raise Discard("in vain")


def write_and_fail():
    User.objects.create(username="handler")
    raise Discard("in vain")


def write():
    User.objects.create(username="handler")


@pytest.fixture
def received():
    """What was sent: the name of the signal, its sender and its result."""
    with listening() as found:
        yield found


@contextmanager
def listening(then=lambda name, result: None):
    found = []

    def receiver_of(name):
        def receive(sender, task_result, **_kwargs):
            found.append((name, sender, task_result))
            then(name, task_result)

        return receive

    receivers = [(getattr(framework.signals, name), receiver_of(name)) for name in NAMES]
    for signal, receiver in receivers:
        signal.connect(receiver)
    try:
        yield found
    finally:
        for signal, receiver in receivers:
            signal.disconnect(receiver)


def names(received):
    return [name for name, *_ in received]


@pytest.mark.parametrize("chosen", [tasks.add_up, tasks.add_up_async])
def test_each_signal_is_sent_once_in_order_by_the_class_of_the_backend(received, chosen):
    result = chosen.enqueue(1, b=2)
    assert names(received) == ["task_enqueued"]

    drain()

    assert names(received) == list(NAMES)
    assert {sender for _, sender, _ in received} == {PgJobsBackend}
    statuses = [told.status for *_, told in received]
    assert statuses == [Status.READY, Status.RUNNING, Status.SUCCESSFUL]
    assert {told.id for *_, told in received} == {result.id}
    *_, last = received[-1]
    assert (last.return_value, last.attempts, last.args, last.kwargs) == (3, 1, [1], {"b": 2})
    assert last.finished_at >= last.started_at


def test_a_task_with_another_attempt_to_come_is_not_finished(received):
    tasks.fail_twice.enqueue()
    drain()
    assert names(received) == [NAMES[0], *[NAMES[1]] * 3, NAMES[2]]
    assert [told.attempts for *_, told in received] == [0, 1, 2, 3, 3]


@pytest.mark.parametrize("function", [cancelled, discarded])
def test_a_task_that_is_given_up_is_finished_as_failed(received, function):
    task(function).enqueue()
    drain()
    assert names(received) == list(NAMES)
    *_, last = received[-1]
    assert last.status == Status.FAILED
    assert len(last.errors) == 1
    last.refresh()
    assert len(last.errors) == 1


def test_enqueued_is_sent_in_the_transaction_and_what_a_receiver_raises_is_the_callers():
    def refuse(name, _result):
        if name == "task_enqueued":
            raise LookupError

    with listening(refuse), pytest.raises(LookupError), transaction.atomic():
        tasks.add_up.enqueue(1)
    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("in_transaction", [False, True])
def test_what_a_receiver_refuses_is_not_enqueued_though_the_caller_goes_on(in_transaction):
    def refuse(name, _result):
        raise LookupError

    with listening(refuse), transaction.atomic() if in_transaction else nullcontext():
        with pytest.raises(LookupError):
            tasks.add_up.enqueue(1)
        User.objects.create()
    assert not Job.objects.exists()
    assert User.objects.exists()


def test_enqueueing_costs_no_transaction_where_nobody_listens(django_assert_num_queries):
    with django_assert_num_queries(1):
        tasks.add_up.enqueue(1)


def test_a_receiver_in_the_worker_cannot_change_what_becomes_of_a_task(caplog):
    def refuse(name, _result):
        if name != "task_enqueued":
            raise SystemError

    with listening(refuse):
        result = tasks.add_up.enqueue(1)
        drain()
    result.refresh()
    assert result.return_value == 1


@pytest.mark.parametrize("by_orm", [False, True])
@pytest.mark.django_db(transaction=True)
def test_an_sql_error_of_a_receiver_does_not_end_the_transaction_of_a_task(by_orm):
    def refuse(name, _result):
        if name == "task_started" and by_orm:
            User.objects.create(username=None)
        elif name == "task_started":
            with connection.cursor() as cursor:
                cursor.execute("select 1 / 0")

    with listening(refuse):
        result = task(atomic=True)(write).enqueue()
        drain()
    result.refresh()
    assert (result.status, result.errors) == (Status.SUCCESSFUL, [])
    assert User.objects.get().username == "handler"


def test_a_receiver_may_write_though_an_atomic_handler_is_rolled_back():
    def note(name, result):
        User.objects.create(username=f"{name} {result.id}")

    with listening(note):
        result = task(atomic=True)(write_and_fail).enqueue()
        drain()
    there = set(User.objects.values_list("username", flat=True))
    assert f"task_finished {result.id}" in there
    assert "handler" not in there


def lines(caplog):
    return [record.getMessage().rpartition(" ")[2] for record in of_framework(caplog)]


def of_framework(caplog):
    return [r for r in caplog.records if r.name == framework.signals.logger.name]


@pytest.mark.parametrize("heard", [False, True])
def test_the_log_is_the_frameworks_whoever_listens(caplog, heard):
    caplog.set_level(logging.DEBUG, framework.signals.logger.name)
    if heard:
        with listening():
            result = tasks.add_up.enqueue(1)
            drain()
    else:
        result = tasks.add_up.enqueue(1)
        drain()
    assert lines(caplog) == ["backend=default", "state=RUNNING", "state=SUCCESSFUL"]
    assert all(f"id={result.id} " in r.getMessage() for r in of_framework(caplog))
    assert not any(record.exc_info and record.exc_info[0] for record in of_framework(caplog))


@pytest.mark.parametrize("heard", [False, True])
def test_a_failure_is_logged_with_its_traceback(caplog, heard):
    chosen = tasks.fail.using(max_attempts=1)
    if heard:
        with listening():
            chosen.enqueue()
            drain()
    else:
        chosen.enqueue()
        drain()
    last = of_framework(caplog)[-1]
    assert last.levelno == logging.ERROR
    assert last.exc_info[0] is ValueError


@contextmanager
def keeping(*conditions):
    """Have the framework's log take its records here, under these conditions."""
    handler, kept = logging.Handler(), []
    handler.emit = kept.append
    for condition in conditions:
        handler.addFilter(condition)
    framework.signals.logger.addHandler(handler)
    try:
        yield kept
    finally:
        framework.signals.logger.removeHandler(handler)


@pytest.mark.parametrize("conditions", [(), (RequireDebugTrue(),)])
def test_a_handler_that_comes_later_takes_the_log_from_then_on(
    caplog, monkeypatch, settings, conditions
):
    caplog.set_level(logging.INFO, framework.signals.logger.name)
    monkeypatch.setattr(framework.signals.logger, "propagate", False)
    tasks.add_up.enqueue(1)
    drain()

    settings.DEBUG = True
    with keeping(*conditions) as kept:
        result = tasks.add_up.enqueue(1)
        drain()
    tasks.add_up.enqueue(1)
    drain()

    begin = f"Task id={result.id} path={tasks.add_up.module_path} state="
    assert [r.getMessage() for r in kept] == [f"{begin}RUNNING", f"{begin}SUCCESSFUL"]


def test_no_context_is_made_for_a_task_that_takes_none(monkeypatch):
    monkeypatch.delattr(execution, "JobContext")
    result = tasks.add_up.enqueue(1, b=2)
    drain()
    result.refresh()
    assert result.return_value == 3


def test_nothing_is_read_for_a_signal_that_nobody_hears(monkeypatch):
    read = []
    monkeypatch.setattr(results, "row", read.append)
    result = tasks.add_up.enqueue(1)
    drain()
    assert not read
    assert Job.objects.get(pk=result.id).status == "done"


def test_a_job_that_was_there_is_not_enqueued_again(received):
    once = tasks.add_up.using(unique=Unique())
    once.enqueue(1)
    once.enqueue(1)
    assert names(received) == ["task_enqueued"]
