"""`job.wait()`: until the row is final, outside of transactions, and no longer than it may."""

from __future__ import annotations

import asyncio
import datetime
import math
import time

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from django_pgjobs import InvalidOption, PgJobsError, WaitInTransaction, WaitTimeout
from django_pgjobs.models import Job
from tests.db.rows import AGO, make
from tests.db.sessions import in_thread
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

FINAL = ["done", "failed", "cancelled"]


def wait(job, timeout):
    return job.wait(timeout)


def await_(job, timeout):
    async def waiting():
        try:
            return await job.await_(timeout)
        finally:
            await sync_to_async(connections.close_all)()  # those of that thread

    return asyncio.run(waiting())


both = pytest.mark.parametrize("waiting", [wait, await_], ids=["wait", "await_"])


def finish(job, status):
    values = {"status": status, "finished_at": AGO, "locked_at": None, "locked_by": None}
    return Job.objects.filter(pk=job.pk).update(**values)


@both
@pytest.mark.parametrize("status", FINAL)
def test_it_returns_the_job_as_it_is_in_the_end(waiting, status):
    job = make("running")

    def finish_once_it_waits():
        began = time.monotonic()
        eventually(lambda: time.monotonic() > began + 0.1)
        return finish(job, status)

    with in_thread(finish_once_it_waits):
        answer = waiting(job, 20)
    assert answer is job
    assert (job.status, job.finished_at) == (status, AGO)


@both
@pytest.mark.parametrize("status", FINAL)
def test_one_that_is_final_is_not_waited_for(waiting, status):
    job = make()
    finish(job, status)
    assert waiting(job, 0).status == status


@both
@pytest.mark.parametrize("timeout", [0, 0.2, datetime.timedelta(milliseconds=200)])
def test_when_the_time_is_over_it_says_so_and_the_job_goes_on(waiting, timeout):
    job = make("running")
    began = time.monotonic()
    with pytest.raises(WaitTimeout, match="must be final at the end of the timeout, got 'running'"):
        waiting(job, timeout)
    assert time.monotonic() - began < 5
    assert Job.objects.get().status == "running"
    assert issubclass(WaitTimeout, PgJobsError)
    assert issubclass(WaitTimeout, TimeoutError)


def test_in_a_transaction_it_refuses_at_once():
    job = make()
    with transaction.atomic(), pytest.raises(WaitInTransaction, match="in tests, use drain"):
        job.wait(20)
    transaction.set_autocommit(False)
    try:
        with pytest.raises(WaitInTransaction):
            job.wait(20)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


@pytest.mark.parametrize("timeout", [-1, math.nan, math.inf, "5", True])
def test_what_is_no_timeout_is_refused_before_anything_is_asked(timeout):
    job = make()
    refused = pytest.raises(InvalidOption, match="timeout must be None or a timedelta")
    with CaptureQueriesContext(connection) as queries, refused:
        job.wait(timeout)
    assert len(queries) == 0


@both
def test_a_row_that_is_gone_does_not_exist(waiting):
    job = make()
    Job.objects.all().delete()
    with pytest.raises(Job.DoesNotExist):
        waiting(job, 20)


def test_it_asks_less_and_less_often_and_reads_the_status_alone():
    job = make("running")
    with CaptureQueriesContext(connection) as queries, pytest.raises(WaitTimeout):
        job.wait(1.5)
    assert 5 < len(queries) < 30
    assert all("payload" not in query["sql"] for query in queries)
