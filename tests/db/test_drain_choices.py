"""The choices of `drain()`: which jobs it runs, how many, and what becomes of a failure."""

from __future__ import annotations

import pytest
from django.db import connection
from django.db.models import Count

from django_pgjobs import (
    Discard,
    InvalidOption,
    JobCancelled,
    Limit,
    Retry,
    Snooze,
    UnknownKind,
    enqueue,
    get_job,
    job,
)
from django_pgjobs.models import Job, Worker
from django_pgjobs.options import LATEST
from django_pgjobs.testing import Drained, drain, immediate
from tests.db.rows import FUTURE, make, row

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]


def by_status():
    return dict(Job.objects.values_list("status").annotate(Count("id")))


def test_kinds_are_names_or_job_types():
    add = get_job("add")
    for _ in range(2):
        enqueue("noop")
        add.enqueue(a=1)
        enqueue("anoop")

    assert drain(kinds="noop") == 2
    assert drain(kinds=[add, "anoop"], limit=3) == 3
    assert drain(kinds=add) + drain(kinds=["anoop"]) == 1


def test_kinds_and_queues_that_no_job_could_have_are_refused():
    for work in (drain, lambda **chosen: immediate(**chosen).__enter__()):
        with pytest.raises(UnknownKind, match="Did you mean 'noop'"):
            work(kinds=["anoop", "nopo"])
        with pytest.raises(InvalidOption, match=r"queue must be .*, got 'a b'"):
            work(queues=["default", "a b"])
        with pytest.raises(TypeError, match=r"kind must be .*, got 7"):
            work(kinds=[7])
        with pytest.raises(TypeError, match=r"kind must be .*, got 7"):
            work(kinds=7)


def test_a_kind_without_a_handler_may_be_chosen_where_rows_have_it():
    make(kind="of_another_program")

    assert drain(kinds="of_another_program").failed == 1


@pytest.mark.parametrize("limit", ["x", -1, True, 1.5])
def test_a_limit_that_is_no_number_of_attempts_is_refused(limit):
    enqueue("noop")

    with pytest.raises(InvalidOption, match="limit must be a whole number from 0 on, got"):
        drain(limit=limit)

    assert not Worker.objects.exists()


def test_jobs_of_other_kinds_are_left_exactly_as_they_were():
    others = [
        make(kind="boom", priority=9),
        make(kind="boom", concurrency_key="k"),
        make(kind="boom", run_at=FUTURE),
        make(kind="boom", run_at=LATEST),
        make("running", kind="boom"),
    ]
    before = [row(job) for job in others]
    enqueue("noop")

    assert drain(kinds=["noop"]) == 1

    assert [row(job) for job in others] == before


@pytest.mark.django_db(transaction=True)
def test_jobs_of_other_kinds_are_left_as_they_were_outside_a_transaction():
    other = make(kind="boom", priority=9)
    before = row(other)
    enqueue("noop")

    assert drain(kinds=["noop"]) == 1

    assert row(other) == before


def test_a_handler_sees_jobs_of_other_kinds_as_they_are():
    seen = []
    job(kind="look_around")(lambda: seen.append(Job.objects.due().filter(kind="noop").count()))
    enqueue("noop")
    enqueue("look_around")

    drain(kinds=["look_around"])

    assert seen == [1]


def test_jobs_with_limits_are_chosen_by_kind_too():
    @job(concurrency=Limit(1, key="a"))
    def one_at_a_time(a): ...

    @job(concurrency=Limit(1, key="a"))
    def another(a): ...

    for kind in (one_at_a_time, another):
        kind.enqueue_many({"a": n % 2} for n in range(4))

    assert drain(kinds=one_at_a_time) == 4
    assert by_status() == {"done": 4, "pending": 4}


def test_queues_are_chosen():
    for queue in ("a", "b", "c"):
        get_job("noop").using(queue=queue).enqueue()

    assert drain(queues=["a", "b"]) == 2
    assert drain(queues="c") == 1


def test_a_limit_is_a_number_of_attempts():
    get_job("noop").enqueue_many({} for _ in range(5))

    assert drain(limit=0) == 0
    assert drain(limit=2) == 2
    assert by_status() == {"done": 2, "pending": 3}


def test_the_answer_is_a_number_that_says_how_they_ended():
    def raising(error):
        def handler():
            raise error

        return handler

    for kind, error in [
        ("snooze", Snooze(60)),
        ("stop", JobCancelled()),
        ("give_up", Discard("no")),
    ]:
        job(kind=kind)(raising(error))
        enqueue(kind)
    job(kind="kept", atomic=True)(lambda: None)
    for kind in ("noop", "kept", "boom"):
        enqueue(kind)

    drained = drain()

    assert isinstance(drained, Drained)
    assert repr(drained) == "6 (done=2, failed=2, snoozed=1, cancelled=1)"
    assert (drained, drained.done, drained.failed) == (6, 2, 2)
    assert (drained.snoozed, drained.cancelled) == (1, 1)


# ------------------------------------------------------------------------------------- failures


class Own(Exception):
    pass


@pytest.mark.parametrize("options", [{}, {"atomic": True}], ids=["plain", "atomic"])
def test_the_exception_of_a_handler_is_raised_with_its_traceback(options):
    @job(**options)
    def breaks():
        raise Own("here")

    broken, after = breaks.enqueue(), enqueue("noop")

    with pytest.raises(Own, match="here") as caught:
        drain(raise_on_failure=True)

    assert caught.traceback[-1].name == "breaks"
    assert caught.value.__notes__ == [f"Raised in attempt 1 of 5 of job {broken.pk} (breaks)."]
    # The attempt is settled all the same, and those after it have not run.
    assert row(broken)["last_error"].endswith("Own: here")
    assert row(after)["status"] == "pending"
    assert not Worker.objects.filter(died_at=None).exists()
    assert drain(raise_on_failure=True) == 1


def test_the_exception_of_an_async_handler_is_raised():
    @job
    async def breaks():
        raise Own

    breaks.enqueue()

    with pytest.raises(Own):
        drain(raise_on_failure=True)


def test_a_retry_is_a_failure_and_a_snooze_is_none():
    @job
    def once_more():
        raise Retry(60)

    @job
    def later():
        raise Snooze(60)

    later.enqueue()
    assert drain(raise_on_failure=True) == 1
    once_more.enqueue()
    with pytest.raises(Retry):
        drain(raise_on_failure=True)


def test_a_failure_without_an_exception_of_the_handler_is_named():
    unknown = make(kind="of_another_program")

    with pytest.raises(AssertionError) as caught:
        drain(raise_on_failure=True)

    said = str(caught.value)
    assert said.startswith(f"Job {unknown.pk} (of_another_program) must not fail, got ")
    assert "UnknownKind" in said


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_what_would_end_the_test_run_is_named_instead(error):
    @job
    def leaves():
        raise error

    leaves.enqueue()

    with pytest.raises(AssertionError, match=type(error).__name__):
        drain(raise_on_failure=True)


def test_sql_that_failed_is_raised_and_leaves_the_transaction_usable():
    @job
    def broken():
        with connection.cursor() as cursor:
            cursor.execute("select 1/0")

    queued = broken.enqueue()

    with pytest.raises(Exception, match="division by zero"):
        drain(raise_on_failure=True)

    assert row(queued)["attempts"] == 1
