"""`testing.drain()`: due jobs run in the test's own transaction and thread, as in a worker."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.test import TestCase

from django_pgjobs import enqueue, get_job, job
from django_pgjobs.models import Job, Worker
from django_pgjobs.testing import drain
from tests.db.rows import FUTURE, make, row

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]


class DrainInATestCase(TestCase):
    def test_the_jobs_of_the_test_run_on_its_rows_and_in_its_thread(self):
        @job
        def rename(user_id):
            User.objects.filter(pk=user_id).update(username="renamed")
            return [threading.get_ident(), connection.in_atomic_block]

        user = User.objects.create(username="u")
        renamed = rename.enqueue(user.pk)

        assert drain() == 1

        user.refresh_from_db()
        assert user.username == "renamed"
        assert row(renamed)["status"] == "done"
        assert row(renamed)["result"] == [threading.get_ident(), True]


def test_nothing_due_is_nothing_run():
    make(run_at=FUTURE)
    make("done")
    make("running")
    make("failed")

    assert drain() == 0


def test_the_return_value_counts_the_attempts():
    enqueue("noop")
    enqueue("boom")
    enqueue("anoop")

    assert drain() == 3
    assert drain() == 0


def _noting(ran):
    def note(n):
        ran.append(n)

    return note


def test_jobs_run_in_the_order_of_a_worker():
    ran = []
    job(kind="note")(_noting(ran))
    for n, priority in enumerate([0, 5, -5, 5]):
        get_job("note").using(priority=priority).enqueue(n)

    drain()

    assert ran == [1, 3, 0, 2]


def test_jobs_that_jobs_enqueue_run_too():
    ran = []

    @job
    def count_down(n):
        ran.append(n)
        if n:
            enqueue("count_down", n=n - 1)

    enqueue("count_down", n=3)

    assert drain() == 4
    assert ran == [3, 2, 1, 0]


def test_a_failed_attempt_is_left_as_in_production():
    failing, last = enqueue("boom", message="no"), get_job("boom").using(max_attempts=1).enqueue()

    assert drain() == 2

    failing.refresh_from_db()
    assert (failing.status, failing.attempts) == ("pending", 1)
    assert failing.run_at > failing.attempted_at
    assert failing.last_error == "ValueError: no"
    assert row(last)["status"] == "failed"
    assert drain() == 0  # the next attempt is not due yet


def test_what_a_failed_handler_wrote_stays_as_in_autocommit():
    @job
    def half(name):
        User.objects.create(username=name)
        raise ValueError

    enqueue("half", name="u")
    drain()

    assert User.objects.filter(username="u").exists()


def test_sql_that_fails_in_a_handler_leaves_the_tests_transaction_usable():
    @job
    def broken():
        with connection.cursor() as cursor:
            cursor.execute("select 1/0")

    @job
    def broken_in_its_own_block():
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("select 1/0")

    @job
    def careless():
        try:
            with connection.cursor() as cursor:
                cursor.execute("select 1/0")
        except DatabaseError:
            return "as if nothing was"

    before = User.objects.create(username="before")
    jobs = [enqueue("broken"), enqueue("broken_in_its_own_block"), enqueue("careless")]
    good = enqueue("add", a=1)

    assert drain() == 4

    assert [row(each)["status"] for each in jobs] == ["pending", "pending", "done"]
    assert "division by zero" in row(jobs[0])["last_error"]
    assert row(good)["result"] == 1
    assert User.objects.get() == before


def test_a_job_enqueued_by_sql_runs():
    with connection.cursor() as cursor:
        cursor.execute(
            """insert into django_pgjobs_job (kind, payload) values ('add', '{"a": 4}')"""
        )

    drain()

    assert Job.objects.get().result == 4


def test_a_drain_leaves_no_living_worker_and_no_claimed_job():
    enqueue("noop")
    enqueue("boom")

    drain()

    assert Worker.objects.filter(died_at__isnull=True).count() == 0
    assert Job.objects.running().count() == 0


@pytest.mark.django_db(transaction=True)
def test_outside_a_transaction_each_job_runs_in_autocommit():
    found = []
    job(kind="peek")(lambda: found.append(connection.in_atomic_block))
    enqueue("peek")

    assert drain() == 1

    assert found == [False]
    assert Job.objects.done().count() == 1


@pytest.mark.django_db(databases=["default", "other"])
def test_the_jobs_of_another_database_are_drained_where_the_router_sends_them(settings):
    settings.DATABASE_ROUTERS = [JobsElsewhere()]
    enqueue("add", a=3)

    assert drain() == 1
    assert Job.objects.using("other").get().result == 3


class JobsElsewhere:
    def db_for_write(self, model, **hints):
        return "other" if model in (Job, Worker) else None


def test_a_handler_may_open_a_durable_block(kinds):
    @job
    def durable() -> None:
        with transaction.atomic(durable=True):
            pass

    queued = durable.enqueue()

    drain()

    assert row(queued)["status"] == "done"


def test_what_a_handler_asks_for_on_commit_happens_when_it_is_done(kinds):
    seen = []

    @job
    def later() -> None:
        with transaction.atomic():
            transaction.on_commit(lambda: seen.append("committed"))
            seen.append("in the block")

    later.enqueue()

    drain()

    assert seen == ["in the block", "committed"]


def asks_for_on_commit(seen):
    @job
    def later() -> None:
        transaction.on_commit(lambda: seen.append("committed"))

    return later


def test_what_happened_on_commit_does_not_happen_again(kinds, django_capture_on_commit_callbacks):
    seen = []
    asks_for_on_commit(seen).enqueue()

    with django_capture_on_commit_callbacks(execute=True):
        transaction.on_commit(lambda: seen.append("before"))
        drain()
        transaction.on_commit(lambda: seen.append("after"))
        assert seen == ["committed"]

    assert seen == ["committed", "before", "after"]


@pytest.mark.django_db(transaction=True)
def test_nor_at_the_commit_of_the_block_around_it(kinds):
    seen = []
    with transaction.atomic():
        asks_for_on_commit(seen).enqueue()
        drain()
        assert seen == ["committed"]
    assert seen == ["committed"]


def test_what_a_failing_callback_leaves_does_not_happen_again(
    kinds, django_capture_on_commit_callbacks
):
    called = []

    def fail() -> None:
        called.append("once")
        raise ZeroDivisionError

    @job
    def broken() -> None:
        transaction.on_commit(fail)

    broken.enqueue()
    with django_capture_on_commit_callbacks(execute=True), pytest.raises(ZeroDivisionError):
        drain()

    assert called == ["once"]


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors as Linux shows them")
def test_it_leaves_no_file_open():
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    drain()
    gc.collect()  # what other tests have left open
    before = opened()
    for _ in range(3):
        drain()
    assert opened() == before


def test_a_job_that_a_job_has_enqueued_runs_though_its_queue_and_priority_are_new(kinds):
    @job
    def first():
        get_job("noop").using(queue="other").enqueue()
        get_job("noop").using(priority=5).enqueue()

    first.enqueue()

    assert drain() == 3


async def drained():
    await get_job("noop").aenqueue()
    await get_job("anoop").aenqueue()
    return await sync_to_async(drain)()


def test_async_code_drains_in_a_thread_that_may_use_the_database():
    assert async_to_sync(drained)() == 2
