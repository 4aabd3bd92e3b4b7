"""An idle worker starts a job at its commit where it hears of it, and within its poll where it does not."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from django_pgjobs import notify, statements
from django_pgjobs.models import Job
from example_project.postgres import EmbeddedPostgres
from tests.app.probes import again, record
from tests.processes import CALM
from tests.waiting import eventually

HOUR = 3_600.0
READY = "INFO django_pgjobs.listener: Listening"


@pytest.fixture
def deaf_to_the_poll(processes):
    """Start a worker that would look by itself only after an hour."""

    def start(*arguments: str, **options: Any) -> Any:
        options = {"PGJOBS_TEST_LOG_LEVEL": "INFO", **options}
        worker = processes.worker("--poll", str(HOUR), "--threads", "2", *arguments, **options)
        eventually(lambda: READY in worker.output or not worker.alive, within=20)
        assert worker.alive, worker.output
        return worker

    return start


def listening_backends() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "select pid from pg_stat_activity where application_name = 'pgjobs-test-process' "
            "and datname = current_database() and query ilike 'listen %'"
        )
        return [pid for (pid,) in cursor.fetchall()]


def assert_each_starts_at_its_commit(processes: Any, *keys: str) -> None:
    """Enqueue one after the other, each when the last is done: no look for one finds the next."""
    for key in keys:
        with transaction.atomic():
            job = record.enqueue(key=key)
        eventually(lambda pk=job.pk: Job.objects.done().filter(pk=pk).exists(), within=5)
    assert [entry.key for entry in processes.ledger.starts()][-len(keys) :] == list(keys)


def test_an_idle_worker_starts_a_job_at_its_commit(deaf_to_the_poll, processes):
    worker = deaf_to_the_poll()
    assert_each_starts_at_its_commit(processes, "a", "b", "c", "d")
    Job.objects.update(status="failed")
    Job.objects.filter(payload__key="a").retry()
    eventually(lambda: len(processes.ledger.starts("a")) == 2, within=5)
    assert worker.stop() == 0, worker.output


def test_a_supervised_worker_hears_too(processes):
    supervisor = processes.supervisor("--poll", str(HOUR), PGJOBS_TEST_LOG_LEVEL="INFO")
    eventually(lambda: READY in supervisor.output, within=20)
    assert_each_starts_at_its_commit(processes, "a", "b", "c")
    assert supervisor.stop() == 0, supervisor.output


def test_jobs_whose_wake_ups_were_dropped_are_found_by_looking_again(
    deaf_to_the_poll, processes, settings
):
    deaf_to_the_poll()
    for n in range(10):  # on a slow machine one may come too late for the last look
        settings.PGJOBS = {}
        assert_each_starts_at_its_commit(processes, f"heard-{n}")
        settings.PGJOBS = {"NOTIFY": False}
        record.enqueue(key=f"dropped-{n}")
        with suppress(AssertionError):
            eventually(lambda n=n: processes.ledger.starts(f"dropped-{n}"), within=1)
            return
    pytest.fail("the worker never looked again")


def test_a_worker_runs_a_further_attempt_when_it_is_due_whenever_it_would_look_by_itself(
    deaf_to_the_poll, processes
):
    """Of several it knows each, and no heartbeat makes it look either."""
    deaf_to_the_poll(pgjobs={"LEASE": 3 * HOUR, "HEARTBEAT": HOUR})
    for delay in (0.6, 0.3):
        again.using(max_attempts=3).enqueue(delay=delay)
    eventually(lambda: Job.objects.failed().filter(attempts=3).count() == 2, within=5)


def test_without_notify_nobody_listens_and_the_poll_finds_it(processes):
    worker = processes.worker("--no-notify", "--poll", "0.5")
    assert worker.worker
    assert_each_starts_at_its_commit(processes, "a", "b")
    assert not listening_backends()
    assert worker.stop() == 0, worker.output


def test_the_setting_turns_listening_off(processes):
    worker = processes.worker(pgjobs={"NOTIFY": False, "POLL": 0.5})
    assert worker.worker
    assert_each_starts_at_its_commit(processes, "a", "b")
    assert not listening_backends()


def test_when_every_notification_is_lost_the_poll_finds_it(processes, settings):
    settings.PGJOBS = {"NOTIFY": False}  # of this process, which enqueues
    worker = processes.worker("--poll", "0.5", PGJOBS_TEST_LOG_LEVEL="INFO")
    eventually(lambda: READY in worker.output, within=20)
    for key in "abc":
        record.enqueue(key=key)
        committed = time.time()
        [entry] = eventually(lambda key=key: processes.ledger.starts(key))
        assert entry.at - committed < 0.5 + 0.5


def test_a_worker_whose_listening_connection_was_cut_hears_again(deaf_to_the_poll, processes):
    worker = deaf_to_the_poll()
    assert_each_starts_at_its_commit(processes, "a")
    for times in (2, 3):
        [backend] = listening_backends()
        with connection.cursor() as cursor:
            cursor.execute("select pg_terminate_backend(%s)", [backend])
        eventually(lambda times=times: worker.output.count(READY) == times)
        assert_each_starts_at_its_commit(processes, f"b{times}", f"c{times}", f"d{times}")
    assert worker.stop() == 0, worker.output


def test_it_listens_on_the_alias_of_the_setting(processes):
    """Here it leads to the same database, as one that bypasses a pooler does."""
    settings = {**CALM, "LISTEN_DATABASE": "other"}
    worker = processes.worker("--poll", str(HOUR), pgjobs=settings, PGJOBS_TEST_LOG_LEVEL="INFO")
    eventually(lambda: f"{READY} for wake-ups on the database 'other'" in worker.output, within=20)
    assert_each_starts_at_its_commit(processes, "a", "b", "c")
    assert worker.stop() == 0, worker.output


@pytest.fixture
def lonely_primary():
    """A server whose commits wait for a replica that is not there, where a session asks for that."""
    settings = {"synchronous_commit": "off", "synchronous_standby_names": "nobody"}
    with EmbeddedPostgres(fsync=False, settings=settings) as server:
        yield server


def test_a_commit_that_holds_the_lock_of_notify_delays_a_wake_up_by_a_second(lonely_primary):
    """Any program on the server may notify in a transaction and then wait for its replica."""
    holder = psycopg.connect(lonely_primary.url, autocommit=True)
    sender = psycopg.connect(lonely_primary.url, autocommit=True)
    locked = (
        "select from pg_locks where locktype = 'object' and database = 0 and granted "
        "and pid <> pg_backend_pid()"
    )
    wake_up = {"channel": notify.CHANNEL, "payload": "default"}
    with holder, sender, ThreadPoolExecutor(1) as pool:
        holder.execute("set synchronous_commit = on")
        sender.execute("set statement_timeout = '10s'")
        stuck = pool.submit(holder.execute, "create table written (); notify something")
        try:
            eventually(lambda: sender.execute(locked).fetchall())
            began = time.monotonic()
            with pytest.raises(psycopg.errors.LockNotAvailable):
                sender.execute(statements.NOTIFY, wake_up)
            assert time.monotonic() - began > 0.9
        finally:
            holder.cancel_safe()  # the wait for the replica, not the commit
        stuck.result(timeout=20)
        sender.execute("set synchronous_commit = on")
        sender.execute(statements.NOTIFY, wake_up)  # it waits for no replica itself
