"""`immediate()`: jobs run as soon as they are committed, in the caller's thread."""

from __future__ import annotations

import re
import threading

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission
from django.db import IntegrityError, connection, transaction
from django.db.models import Count
from django.test import TestCase

from django_pgjobs import enqueue, get_job, job
from django_pgjobs.models import Job
from django_pgjobs.testing import drain, immediate
from tests.db.rows import make, row

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]


class Own(Exception):
    pass


def by_status():
    return dict(Job.objects.values_list("status").annotate(Count("id")))


class ImmediateInATestCase(TestCase):
    def test_a_job_runs_when_it_is_enqueued(self):
        with immediate():
            queued = enqueue("add", a=1)
            assert row(queued)["result"] == 1

        assert row(enqueue("noop"))["status"] == "pending"

    @immediate()
    def test_it_decorates(self):
        assert row(enqueue("noop"))["status"] == "done"

    async def test_async_code_is_served_too(self):
        with immediate():
            queued = await get_job("noop").aenqueue()

        await queued.arefresh_from_db()
        assert queued.status == "done"


class ImmediateForAClass(TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(immediate())

    def test_it_may_begin_with_the_class(self):
        with transaction.atomic():
            queued = enqueue("noop")
            assert row(queued)["status"] == "pending"
        assert row(queued)["status"] == "done"


def enqueue_in_blocks(seen, **options):
    """Enqueue in two blocks; note in `seen` the status at each of their ends."""
    with transaction.atomic():
        with transaction.atomic(**options):
            queued = enqueue("noop")
            seen.append(row(queued)["status"])
        seen.append(row(queued)["status"])
    seen.append(row(queued)["status"])
    return queued


@pytest.mark.parametrize("savepoint", [True, False])
def test_inside_a_block_it_runs_at_the_end_of_the_outermost(savepoint):
    seen = []
    with immediate():
        enqueue_in_blocks(seen, savepoint=savepoint)

    assert seen == ["pending", "pending", "done"]


@pytest.mark.django_db(transaction=True)
def test_it_runs_after_a_real_commit_too():
    seen, found = [], []
    job(kind="peek")(lambda: found.append(connection.in_atomic_block))
    with immediate():
        enqueue_in_blocks(seen)
        enqueue("peek")

    assert seen == ["pending", "pending", "done"]
    assert found == [False]


def test_a_block_of_the_test_itself_does_not_count():
    with transaction.atomic(), immediate():
        assert row(enqueue("noop"))["status"] == "done"


def enqueue_and_fail(kind):
    with transaction.atomic():
        enqueue(kind)
        raise Own


def test_what_is_rolled_back_never_runs():
    ran = []
    job(kind="note")(lambda: ran.append(1))
    with immediate():
        with pytest.raises(Own):
            enqueue_and_fail("note")
        with transaction.atomic():
            with pytest.raises(Own):
                enqueue_and_fail("note")
            enqueue("noop")
        with transaction.atomic():
            enqueue("note")
            transaction.set_rollback(True)

    assert ran == []
    assert by_status() == {"done": 1}


def test_a_rolled_back_enqueue_wakes_nobody_later():
    before = enqueue("noop")
    with immediate():
        with pytest.raises(Own):
            enqueue_and_fail("noop")
        with transaction.atomic():
            pass

    assert row(before)["status"] == "pending"


@pytest.mark.django_db(transaction=True)
def test_a_commit_that_fails_wakes_nobody_later():
    before = enqueue("noop")
    with immediate():
        with pytest.raises(IntegrityError):
            enqueue_and_violate_a_deferred_constraint()
        with transaction.atomic():
            pass

    assert row(before)["status"] == "pending"


def enqueue_and_violate_a_deferred_constraint():
    with transaction.atomic():
        enqueue("noop")
        Permission.objects.create(name="x", codename="x", content_type_id=-1)


def test_many_at_once_and_verbs_run_too():
    failed = make("failed")
    with immediate():
        get_job("add").enqueue_many([{"a": 1}, {"a": 2}])
        assert by_status() == {"done": 2, "failed": 1}
        failed.retry()
        assert by_status() == {"done": 3}


def test_jobs_that_jobs_enqueue_run_one_after_the_other():
    ran = []

    @job
    def outer():
        enqueue("inner")
        ran.append("outer")

    job(kind="inner")(lambda: ran.append("inner"))
    with immediate():
        outer.enqueue()
    assert ran == ["outer", "inner"]

    outer.enqueue()
    with immediate():
        drain()
    assert ran == ["outer", "inner"] * 2


def test_a_failure_stays_with_the_job_unless_it_is_to_be_raised():
    with immediate():
        assert row(enqueue("boom"))["last_error"] == "ValueError: boom"

    with immediate(raise_on_failure=True):
        with pytest.raises(ValueError, match="boom"):
            enqueue("boom")
        with pytest.raises(ValueError, match="boom"), transaction.atomic():
            enqueue("boom")
        enqueue("noop")

    assert by_status() == {"pending": 3, "done": 1}


def test_delayed_and_other_kinds_wait():
    with immediate(kinds=["noop"]):
        get_job("noop").using(delay=60).enqueue()
        enqueue("add", a=1)
        enqueue("noop")

    assert by_status() == {"pending": 2, "done": 1}


@pytest.mark.django_db(databases=["default", "other"])
def test_each_database_is_worked_on_where_its_blocks_end():
    with immediate(), transaction.atomic():
        get_job("noop").using(database="other").enqueue()
        enqueue("noop")
        assert Job.objects.using("other").get().status == "done"
        assert Job.objects.get().status == "pending"


def test_async_code_is_served():
    async def place():
        first = await get_job("noop").aenqueue()
        return [first, await get_job("anoop").aenqueue()]

    with immediate():
        queued = async_to_sync(place)()

    assert [row(each)["status"] for each in queued] == ["done", "done"]


def test_one_may_be_inside_another_of_itself():
    at_once = immediate()
    with at_once:
        with at_once:
            assert row(enqueue("noop"))["status"] == "done"
        assert row(enqueue("noop"))["status"] == "done"
    assert row(enqueue("noop"))["status"] == "pending"


def test_a_decorated_function_keeps_its_name_arguments_and_result():
    @immediate()
    def place(kind, *, times):
        """Enqueue it so often."""
        return [row(enqueue(kind))["status"] for _ in range(times)]

    assert place("noop", times=2) == ["done", "done"]
    assert place("noop", times=1) == ["done"]
    assert (place.__name__, place.__doc__) == ("place", "Enqueue it so often.")
    assert row(enqueue("noop"))["status"] == "pending"


async def wait(): ...


def count():
    yield


async def count_async():
    yield


class Tests(TestCase): ...


@pytest.mark.parametrize(
    ("decorated", "advice"),
    [
        *((later, "Write `with immediate():` inside it") for later in (wait, count, count_async)),
        (Tests, "self.enterContext"),
    ],
)
def test_what_runs_after_its_call_is_not_decorated(decorated, advice):
    with pytest.raises(TypeError, match=f"must decorate a function .*{re.escape(advice)}"):
        immediate()(decorated)


def test_what_a_handler_asks_for_on_commit_happens_once(django_capture_on_commit_callbacks):
    seen = []

    @job
    def later():
        transaction.on_commit(lambda: seen.append("committed"))

    with django_capture_on_commit_callbacks(execute=True), immediate():
        transaction.on_commit(lambda: seen.append("the test's own"))
        later.enqueue()
        assert seen == ["committed"]

    assert seen == ["committed", "the test's own"]


@pytest.mark.django_db(transaction=True)
def test_other_threads_have_blocks_of_their_own():
    def place():
        try:
            enqueue_in_blocks(seen)
        finally:
            connection.close()

    seen = []
    with immediate():
        with transaction.atomic():
            queued = enqueue("noop")
            thread = threading.Thread(target=place)
            thread.start()
            thread.join()
        assert row(queued)["status"] == "done"

    assert seen == ["pending", "pending", "done"]
