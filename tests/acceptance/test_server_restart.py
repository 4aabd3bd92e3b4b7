"""The database goes away and comes back: the worker goes on, and no job is lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from example_project.postgres import EmbeddedPostgres
from tests.acceptance.conftest import SAFE, processes_on
from tests.processes import Process, Processes
from tests.waiting import eventually

pytestmark = pytest.mark.newest


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """One for each test: they leave it as it fell."""
    with EmbeddedPostgres(fsync=False, settings=SAFE) as server:
        yield server


@pytest.fixture
def processes(server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Processes]:
    with processes_on(server.url, tmp_path) as processes:
        yield processes


def enqueue(server: EmbeddedPostgres, kind: str, key: str) -> None:
    with psycopg.connect(server.url) as connection:
        connection.execute(
            "insert into django_pgjobs_job (kind, payload) "
            "values (%s, jsonb_build_object('key', %s::text))",
            [kind, key],
        )


def statuses(server: EmbeddedPostgres) -> dict[str, tuple[str, int]]:
    with psycopg.connect(server.url) as connection:
        rows = connection.execute("select payload->>'key', status, attempts from django_pgjobs_job")
        return {key: (status, attempts) for key, status, attempts in rows}


def assert_jobs_flow(server: EmbeddedPostgres, worker: Process, key: str) -> None:
    enqueue(server, "record", key)
    eventually(lambda: statuses(server)[key] == ("done", 1) or not worker.alive, within=20)
    assert worker.alive, worker.output


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_worker_outlives_restarts_of_the_server(server, processes, mode):
    worker = processes.worker("--threads", "2")
    enqueue(server, "hold", "across")
    eventually(lambda: processes.ledger.starts("across"), within=20)
    for n in range(3):
        server.restart(mode)
        assert_jobs_flow(server, worker, f"after-{n}")
    server.down(mode)
    processes.open_gate("across")  # it ends while there is no server: the outcome must wait for one
    eventually(lambda: processes.ledger.ends("across"))
    eventually(lambda: "cannot be reached" in worker.output)
    server.up()
    eventually(lambda: statuses(server)["across"] == ("done", 1), within=20)
    assert len(processes.ledger.starts("across")) == 1
    assert worker.stop() == 0


def test_a_worker_can_be_stopped_while_there_is_no_server(server, processes):
    worker = processes.worker("--shutdown-timeout", "1")
    assert_jobs_flow(server, worker, "first")
    server.down("fast")
    eventually(lambda: "cannot be reached" in worker.output)
    assert worker.stop(within=15) in (0, 1)
