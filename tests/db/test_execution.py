"""Whatever a handler does, its attempt ends with an outcome, and the next job runs."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import weakref

import pytest
from django.contrib.auth.models import User
from django.db import connection

from django_pgjobs import enqueue, execution, job
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Done, Failed
from django_pgjobs.testing import drain
from tests.db.rows import FUTURE, claim_of, claimed, make, row
from tests.db.sessions import in_thread

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]


def attempt(handler, max_attempts=1):
    """Run a job of this handler, and a good one after it; return the first."""
    declared = job(kind="probe", max_attempts=max_attempts)(handler)
    tried = declared.enqueue()
    good = enqueue("add", a=2)
    assert drain() == 2
    assert row(good)["result"] == 2
    tried.refresh_from_db()
    return tried


def methods_that_raise(error):
    def refuse(*_args):
        raise error

    names = ["__str__", "__repr__", "__getattr__", "__reduce__", "__eq__", "__format__"]
    return type(
        "Broken", (Exception,), {**dict.fromkeys(names, refuse), "__hash__": object.__hash__}
    )


class NeedsTwo(Exception):
    def __init__(self, one, two):
        super().__init__(one)


def caused_by_itself():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def deep(n=8_000):
    return deep(n - 1) if n else None


class Metaclass(type):
    def __getattribute__(cls, name):
        raise RuntimeError(name)


class Evasive(Exception, metaclass=Metaclass):
    pass


RAISED = {
    "methods that raise": methods_that_raise(RuntimeError),
    "methods that raise SystemExit": methods_that_raise(SystemExit),
    "methods that raise KeyboardInterrupt": methods_that_raise(KeyboardInterrupt),
    "methods that recurse": methods_that_raise(RecursionError),
    "a constructor of two arguments": lambda: NeedsTwo("one", "two"),
    "arguments that are no JSON": lambda: ValueError({1}, object(), b"\x00", lambda: None),
    "a cause that is its own": caused_by_itself,
    "a group of 20,000": lambda: ExceptionGroup("many", [ValueError(n) for n in range(20_000)]),
    "a message of 50 MB": lambda: ValueError("x" * 50_000_000),
    "NUL in the message": lambda: ValueError("a\x00b"),
    "a surrogate in the message": lambda: ValueError("a\ud800b"),
    "a class that hides": lambda: Evasive("x"),
    "sys.exit(0)": lambda: SystemExit(0),
    "sys.exit with a text": lambda: SystemExit("x"),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "StopIteration": StopIteration,
    "CancelledError": asyncio.CancelledError,
    "a BaseException": lambda: BaseException("x"),
    "MemoryError": MemoryError,
}


@pytest.mark.parametrize("raised", RAISED.values(), ids=RAISED)
def test_whatever_is_raised_the_job_fails_with_a_reason_and_the_next_one_runs(raised):
    def handler():
        raise raised()

    failed = attempt(handler)

    assert failed.status == "failed"
    assert failed.last_error
    assert len(failed.last_error) <= 1000
    [entry] = failed.errors
    assert entry["attempt"] == 1
    assert entry["error"] in failed.last_error or entry["error"].startswith("builtins.")
    assert len(str(entry)) < 25_000


@pytest.mark.parametrize("raised", RAISED.values(), ids=RAISED)
def test_whatever_is_raised_the_attempt_counts_and_another_one_follows(raised):
    def handler():
        raise raised()

    retried = attempt(handler, max_attempts=2)

    assert (retried.status, retried.attempts) == ("pending", 1)
    assert retried.run_at > retried.attempted_at


def test_a_recursion_without_end_is_a_failed_job():
    failed = attempt(deep)

    assert failed.status == "failed"
    assert "RecursionError" in failed.last_error
    assert "frames cut" in failed.errors[0]["traceback"]


def test_sys_exit_ends_the_handler_alone():
    failed = attempt(lambda: sys.exit(0))

    assert failed.status == "failed"
    assert failed.last_error == "SystemExit: 0"


def test_an_interrupted_job_asks_its_worker_to_stop():
    def handler():
        raise KeyboardInterrupt

    job(kind="probe")(handler)
    make(kind="probe")

    outcome = execution.run(claimed()[0], "w")

    assert isinstance(outcome, Failed)
    assert outcome.interrupts


def test_the_objects_that_an_exception_holds_are_freed():
    class Big:
        pass

    freed = []

    def handler():
        big = Big()
        freed.append(weakref.ref(big))
        raise ValueError(big)

    job(kind="probe")(handler)
    make(kind="probe")
    logging.disable()  # pytest's own handler keeps the exceptions that it has seen
    try:
        outcome = execution.run(claimed()[0], "w")
    finally:
        logging.disable(logging.NOTSET)

    gc.collect()
    assert isinstance(outcome, Failed)
    assert freed[0]() is None


def test_an_async_handler_runs_to_its_end():
    async def handler():
        await asyncio.sleep(0)
        return 7

    assert attempt(handler).result == 7


def test_an_async_handler_that_fails_is_a_failed_job():
    async def handler():
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    failed = attempt(handler)

    assert failed.status == "failed"
    assert "CancelledError" in failed.last_error


def test_an_attempt_writes_nothing_about_its_job():
    make(kind="add", payload={"a": 1})
    [claim] = claimed()
    before = Job.objects.values().get()

    assert execution.run(claim, "w") == Done(claim, "1")

    assert Job.objects.values().get() == before


def test_a_model_instance_is_loaded_again_where_the_job_runs():
    user = User.objects.create(username="before")

    @job(kind="greet_instance")
    def greet(user):
        return user.username

    greeted = greet.enqueue(user)
    User.objects.update(username="now")

    assert drain() == 1
    assert row(greeted)["result"] == "now"


def test_an_instance_that_is_gone_fails_its_job_at_once():
    user = User.objects.create(username="u")
    job(kind="greet_instance", max_attempts=5)(lambda user: None)
    gone = enqueue("greet_instance", user=user)
    user.delete()

    assert drain() == 1

    gone.refresh_from_db()
    assert (gone.status, gone.attempts) == ("failed", 1)
    assert "auth.User" in gone.last_error
    assert "does not exist any more" in gone.last_error


def test_a_retry_waits_longer_after_each_attempt_until_there_is_none_left():
    def handler():
        raise ValueError

    job(kind="probe", max_attempts=4)(handler)
    tried = enqueue("probe")
    waits = []
    while drain():
        tried.refresh_from_db()
        if tried.status == "pending":
            waits.append((tried.run_at - tried.attempted_at).total_seconds())
            Job.objects.update(run_at=tried.created_at)

    assert (tried.status, tried.attempts) == ("failed", 4)
    assert [round(wait) for wait in waits] == pytest.approx([2, 4, 8], abs=1)
    assert waits == sorted(waits)
    assert len(tried.errors) == 4


def test_a_policy_starts_over_after_a_retry_by_hand():
    def handler():
        raise ValueError

    job(kind="probe")(handler)
    tried = make("failed", kind="probe", attempts=10, max_attempts=10)
    tried.retry()

    drain()

    tried.refresh_from_db()
    assert (tried.status, tried.attempts) == ("pending", 11)
    assert (tried.run_at - tried.attempted_at).total_seconds() < 3


def test_a_claim_made_by_hand_ends_in_an_outcome_too():
    running = make("running", kind="nowhere", run_at=FUTURE)

    outcome = execution.run(claim_of(running), "w")

    assert isinstance(outcome, Failed)
    assert outcome.delay is None


@pytest.mark.django_db(transaction=True)
def test_with_debug_on_the_log_of_queries_does_not_grow_with_the_jobs(settings):
    settings.DEBUG = True
    kept = []

    def handler():
        User.objects.exists()
        kept.append(len(connection.queries_log))

    job(kind="probe")(handler)
    for _ in range(3):
        make(kind="probe")
    claims = claimed()

    def work():
        ended = [execution.run_in_thread(claim, "w") for claim in claims]
        return ended, len(connection.queries_log)

    with in_thread(work) as worked:
        ended, left = worked()
    assert [type(each) for each in ended] == [Done] * 3
    assert kept[0] > 0
    assert kept == kept[:1] * 3
    assert left == 0
