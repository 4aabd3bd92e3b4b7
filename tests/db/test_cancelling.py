"""Cancel: what it reaches, what its reply says, and who wins against the end of a handler."""

from __future__ import annotations

import asyncio
import logging

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgjobs import Discard, JobCancelled, Limit, Snooze, Unique, job, outcomes
from django_pgjobs.cancelling import CancelReply
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Cancelled, Done
from django_pgjobs.testing import drain
from tests.db.rows import STATUSES, claim_of, claimed, execute, make, row

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]

ERROR = {"attempt": 1, "error": "E", "message": "m", "traceback": "", "worker": "w"}


def told(reply):
    return reply.at_once, reply.requested, reply.skipped


# -------------------------------------------------------------------------------------- the reply


def test_the_reply_tells_those_cancelled_from_those_asked_to_stop():
    for status in STATUSES:
        make(status)
    make("pending", run_at="2999-01-01T00:00Z")

    reply = Job.objects.cancel()

    assert isinstance(reply, CancelReply)
    assert (reply, *told(reply)) == (3, 2, 1, 0)
    assert Job.objects.cancelled().count() == 3


def test_the_reply_on_one_job():
    assert told(make().cancel()) == (1, 0, 0)
    assert told(make("running").cancel()) == (0, 1, 0)
    assert told(make("done").cancel()) == (0, 0, 0)
    assert told(Job.objects.none().cancel()) == (0, 0, 0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("status", ["pending", "running"])
def test_a_locked_row_is_skipped_and_the_reply_says_so(status, other_session):
    locked = make(status)
    make(status)
    other_session.execute("select from django_pgjobs_job where id = %s for update", [locked.pk])
    before = row(locked)

    reply = Job.objects.cancel()

    assert (reply, reply.skipped) == (1, 1)
    assert row(locked) == before
    other_session.rollback()
    assert told(Job.objects.filter(pk=locked.pk).cancel())[2] == 0
    assert row(locked) != before


def test_however_many_they_are_it_is_one_statement():
    for status in ("pending", "running") * 5:
        make(status)
    with CaptureQueriesContext(connection) as queries:
        Job.objects.filter(kind="noop").cancel()
    assert len(queries) == 1


# ------------------------------------------------------------------- what a handler may do with it


def ask_to_stop(context):
    Job.objects.filter(pk=context.job.pk).cancel()


def test_a_handler_that_checks_stops_and_its_job_is_cancelled(caplog):
    steps = []

    @job(takes_context=True, max_attempts=5)
    def export(context):
        context.check()
        steps.append("started")
        ask_to_stop(context)
        assert context.cancelled
        context.check()
        steps.append("went on")

    export.enqueue()
    with caplog.at_level(logging.INFO, "django_pgjobs"):
        assert drain() == 1

    assert steps == ["started"]
    stopped = Job.objects.get()
    assert (stopped.status, stopped.attempts) == ("cancelled", 1)
    assert stopped.finished_at
    assert stopped.cancel_requested_at
    assert stopped.last_error == (
        "django_pgjobs.exceptions.JobCancelled: The job was cancelled while it ran."
    )
    assert len(stopped.errors) == 1
    assert "in export" in stopped.errors[0]["traceback"]
    assert "is cancelled in attempt 1" in caplog.text
    assert not [r for r in caplog.records if r.levelno > logging.INFO], "it is no failure"


@pytest.mark.parametrize("queue", ["default", "ledger"])
@pytest.mark.parametrize("atomic", [False, True])
def test_a_handler_may_decide_so_itself(settings, queue, atomic):
    settings.PGJOBS = {"QUEUES": {"ledger": {"claim": "transaction"}}}

    @job(queue=queue, atomic=atomic, max_attempts=5)
    def export():
        make("done", kind="written")
        raise JobCancelled("The order is gone.")

    export.enqueue()
    assert drain() == 1

    stopped = Job.objects.get(kind="export")
    assert (stopped.status, stopped.attempts) == ("cancelled", 1)
    assert stopped.last_error.endswith("JobCancelled: The order is gone.")
    assert stopped.cancel_requested_at is not None, "the request is the handler's own"
    assert Job.objects.filter(kind="written").exists() == (queue == "default" and not atomic)


def test_an_async_handler_may_too():
    @job
    async def export():
        await asyncio.sleep(0)
        raise JobCancelled

    export.enqueue()
    drain()
    assert Job.objects.get().status == "cancelled"


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError("x"), "cancelled"), (Snooze(60), "cancelled"), (Discard("x"), "cancelled")],
    ids=["error", "snooze", "discard"],
)
def test_whatever_else_a_handler_raises_after_a_request_the_job_is_cancelled(error, status):
    @job(takes_context=True)
    def export(context):
        ask_to_stop(context)
        raise error

    export.enqueue()
    drain()
    assert Job.objects.get().status == status


def test_a_handler_that_returns_after_a_request_has_won():
    @job(takes_context=True)
    def export(context):
        ask_to_stop(context)
        return "all"

    export.enqueue()
    drain()
    done = Job.objects.get()
    assert (done.status, done.result) == ("done", "all")
    assert done.cancel_requested_at is not None
    assert told(done.cancel()) == (0, 0, 0)


def test_a_job_that_was_cancelled_while_it_ran_can_be_retried_by_hand():
    seen = []

    @job(takes_context=True, max_attempts=2)
    def export(context):
        seen.append((context.attempt, context.cancelled))
        if len(seen) == 1:
            ask_to_stop(context)
            context.check()

    export.enqueue()
    drain()
    assert Job.objects.cancelled().retry() == 1
    drain()
    done = Job.objects.get()
    assert seen == [(1, False), (2, False)], "the second attempt knows of no request"
    assert (done.status, done.attempts, done.max_attempts) == ("done", 2, 3)


def test_one_that_stops_lets_go_of_its_unique_key():
    @job(unique=Unique())
    def export():
        raise JobCancelled

    first = export.enqueue()
    drain()
    assert row(first)["unique_key"] is None
    second = export.enqueue()
    assert (second.existed, second.pk > first.pk) == (False, True)


@pytest.mark.parametrize("options", [{"concurrency": Limit(1, key="n")}, {"ordered": True}])
def test_one_that_stops_holds_up_nobody_of_its_key(options):
    if "ordered" in options:
        options = {**options, "concurrency": Limit(1, key="n")}

    @job(**options)
    def export(n, *, stop):
        if stop:
            raise JobCancelled

    for stop in True, False:
        export.enqueue(7, stop=stop)
    assert drain() == 2
    assert list(Job.objects.order_by("pk").values_list("status", flat=True)) == [
        "cancelled",
        "done",
    ]


# ------------------------------------------------------------------------------------- one winner


def test_a_completion_before_the_cancel_wins():
    make()
    [claim] = claimed()
    outcomes.settle(execute, 7, [Done(claim)])
    assert told(Job.objects.cancel()) == (0, 0, 0)
    assert Job.objects.get().status == "done"


def test_a_cancel_before_the_completion_is_a_request_and_the_completion_wins():
    make()
    [claim] = claimed()
    assert told(Job.objects.cancel()) == (0, 1, 0)
    outcomes.settle(execute, 7, [Done(claim)])
    assert Job.objects.get().status == "done"


def test_a_handler_that_stops_too_late_changes_nothing(caplog):
    running = make("running", claims=2)
    before = row(running)
    stale = Cancelled(claim_of(running, claims=1), ERROR)
    assert outcomes.settle(execute, 7, [stale]).stale == [stale]
    assert row(running) == before
    assert "its outcome is dropped" in caplog.text


def test_a_stop_whose_answer_was_lost_is_known_again(caplog):
    stopped = Cancelled(claim_of(make("running")), ERROR)
    assert outcomes.settle(execute, 7, [stopped]) == ((), ())
    assert outcomes.settle(execute, 7, [stopped]) == ([], [])
    assert "only the answer to that was lost" in caplog.text
