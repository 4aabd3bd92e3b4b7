"""Connections that break under a worker: at most the running job fails, and the worker goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from django_pgjobs.models import Job
from tests.app.probes import hold, hold_in_sql, hold_in_transaction, look, record
from tests.waiting import eventually

APPLICATION = "pgjobs-test-process"
CONNECTIONS: dict[str, dict[str, Any]] = {
    "CONN_MAX_AGE 0": {"CONN_MAX_AGE": 0},
    "CONN_MAX_AGE 60": {"CONN_MAX_AGE": 60},
    "CONN_MAX_AGE None": {"CONN_MAX_AGE": None},
    "pool": {"CONN_MAX_AGE": 0, "OPTIONS": {"pool": {"min_size": 1, "max_size": 4}}},
}


@pytest.fixture(params=CONNECTIONS)
def worker(request, processes) -> Iterator[Any]:
    """A worker with one handler thread, so that the next job runs in the thread of the last."""
    settings = json.dumps(CONNECTIONS[request.param])
    process = processes.worker("--threads", "1", PGJOBS_TEST_CONNECTION=settings)
    assert process.worker
    yield process
    assert process.stop() == 0, process.output


def cut_all() -> int:
    """Terminate every backend of the processes; return how many there were."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity "
            "where datname = current_database() and application_name = %s",
            [APPLICATION],
        )
        return cursor.fetchone()[0]


def look_around() -> dict[str, Any]:
    job = look.enqueue()
    eventually(lambda: Job.objects.done().filter(pk=job.pk).exists())
    job.refresh_from_db()
    assert job.attempts == 1
    return job.result


def test_the_worker_goes_on_after_its_connections_were_cut(worker, processes):
    before = look_around()
    for _ in range(3):  # idle, and between two jobs
        assert cut_all() >= 1
        after = look_around()
        assert after["thread"] == before["thread"]
        assert after["backend"] != before["backend"]
        before = after
    assert Job.objects.done().count() == 4

    victim = hold_in_sql.using(max_attempts=1).enqueue(key="victim")  # during a job
    eventually(lambda: processes.ledger.starts("victim"))
    neighbour = record.enqueue(key="next")
    assert cut_all() >= 1
    processes.open_gate("victim")
    eventually(lambda: Job.objects.filter(pk=neighbour.pk).done().exists())
    victim.refresh_from_db()
    assert victim.status == "failed", "its own connection was cut in the middle"
    assert look_around()["thread"] == before["thread"]
    assert not Job.objects.exclude(pk=victim.pk).exclude(attempts=1).exists()
    assert worker.alive


def test_a_job_that_asks_nothing_is_settled_once_though_the_connection_was_cut(processes):
    process = processes.worker("--threads", "1")
    hold.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    assert cut_all() >= 1
    processes.open_gate("x")
    job = eventually(lambda: Job.objects.done().first())
    assert job
    assert (job.attempts, job.errors) == (1, [])
    assert len(processes.ledger.starts("x")) == 1
    assert process.stop() == 0


def idle_in_transaction() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "select query from pg_stat_activity "
            "where datname = current_database() and application_name = %s "
            "and state like 'idle in transaction%%' and state_change < clock_timestamp() - '1 s'::interval",
            [APPLICATION],
        )
        return [query for (query,) in cursor.fetchall()]


def test_short_timeouts_of_the_server_hit_the_transaction_of_a_handler_and_nothing_else(processes):
    timeouts = "-c idle_in_transaction_session_timeout=1500 -c statement_timeout=1500"
    settings = {"CONN_MAX_AGE": None, "OPTIONS": {"options": timeouts}}
    worker = processes.worker("--threads", "1", PGJOBS_TEST_CONNECTION=json.dumps(settings))
    hold_in_sql.enqueue(key="long")
    eventually(lambda: processes.ledger.starts("long"))
    started = time.monotonic()
    eventually(lambda: time.monotonic() - started > 3)
    assert idle_in_transaction() == []
    processes.open_gate("long")
    eventually(lambda: Job.objects.done().count() == 1)

    job = hold_in_transaction.using(max_attempts=1).enqueue(key="open")
    eventually(lambda: processes.ledger.starts("open"))
    eventually(idle_in_transaction)
    eventually(lambda: not idle_in_transaction())
    processes.open_gate("open")
    eventually(lambda: Job.objects.failed().filter(pk=job.pk).exists())
    assert look_around()["atomic"] is False
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}
    assert worker.stop() == 0


def test_a_transaction_timeout_of_the_server_hits_the_transaction_of_a_handler_and_nothing_else(
    processes,
):
    if connection.pg_version < 17_00_00:
        pytest.skip("transaction_timeout is of PostgreSQL 17")
    settings = {"CONN_MAX_AGE": None, "OPTIONS": {"options": "-c transaction_timeout=1500"}}
    worker = processes.worker("--threads", "1", PGJOBS_TEST_CONNECTION=json.dumps(settings))
    hold_in_sql.using(max_attempts=1).enqueue(key="long")
    [start] = eventually(lambda: processes.ledger.starts("long"))
    eventually(lambda: time.time() - start.at > 3)
    processes.open_gate("long")
    eventually(lambda: Job.objects.filter(finished_at__isnull=False).count() == 1)
    assert Job.objects.done().count() == 1

    job = hold_in_transaction.using(max_attempts=1).enqueue(key="open")
    eventually(idle_in_transaction)
    eventually(lambda: not idle_in_transaction())
    processes.open_gate("open")
    eventually(lambda: Job.objects.failed().filter(pk=job.pk).exists())
    assert look_around()["atomic"] is False
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}
    assert worker.stop() == 0
