"""The database goes away: the supervisor keeps its children, and all go on when it is back."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from example_project.postgres import EmbeddedPostgres
from tests.acceptance.conftest import processes_on
from tests.acceptance.test_server_restart import enqueue, statuses
from tests.processes import FAST, Processes
from tests.proxies import Proxy
from tests.waiting import eventually

pytestmark = pytest.mark.newest


@pytest.fixture
def processes(server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Processes]:
    with processes_on(server.url, tmp_path) as processes:
        yield processes


def ask(server: EmbeddedPostgres, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.url) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description is not None else []


def assert_jobs_flow(server, processes, key: str) -> None:
    enqueue(server, "record", key)
    eventually(lambda: statuses(server)[key] == ("done", 1), within=10)


def test_it_outlives_restarts_and_keeps_its_children(server, processes, request):
    name = request.node.name
    supervisor = processes.supervisor("--processes", "2", "--threads", "1", pgjobs=FAST)
    assert_jobs_flow(server, processes, f"{name}-first")
    children = supervisor.children
    enqueue(server, "hold", "across")
    eventually(lambda: processes.ledger.starts("across"))
    for mode in ("fast", "immediate"):
        server.restart(mode)
        assert_jobs_flow(server, processes, f"{name}-{mode}")
    server.down("immediate")
    processes.open_gate("across")
    eventually(lambda: "The keeper cannot reach the database" in supervisor.output)
    down = time.monotonic()
    eventually(lambda: time.monotonic() - down > 2.5, within=10)  # longer than the lease
    server.up()
    eventually(lambda: statuses(server)["across"] == ("done", 1), within=10)
    assert_jobs_flow(server, processes, f"{name}-last")
    assert supervisor.children == children
    assert "died" not in supervisor.output
    assert supervisor.stop() == 0


def test_it_waits_for_a_database_that_is_not_there_yet(server, processes):
    server.down("fast")
    supervisor = processes.supervisor(pgjobs={"LEASE": 0.2, "HEARTBEAT": 0.05, "POLL": 0.1})
    eventually(lambda: "The keeper cannot reach the database, trying again" in supervisor.output)
    children = eventually(lambda: supervisor.children)
    began = time.monotonic()
    eventually(lambda: time.monotonic() - began > 2.5, within=10)  # longer than ten leases
    server.up()
    assert_jobs_flow(server, processes, "late")
    assert supervisor.children == children, "who waits to be registered is not silent"
    assert supervisor.stop() == 0


def test_it_stops_in_time_while_there_is_no_server(server, processes):
    supervisor = processes.supervisor("--shutdown-timeout", "1")
    enqueue(server, "hold", "cut")
    eventually(lambda: processes.ledger.starts("cut"))
    server.down("fast")
    eventually(lambda: "cannot be reached" in supervisor.output)
    try:
        asked = time.monotonic()
        assert supervisor.stop() == 1
        assert time.monotonic() - asked < 1 + 2 + 1 + 2
    finally:
        server.up()
    assert "could not be recorded" in supervisor.output


def test_an_attempt_that_is_still_to_be_counted_waits_for_the_server_without_haste(
    server, processes
):
    enqueue(server, "sleep_in_sql", "asleep")  # the server will not notice who is gone
    ask(
        server,
        "update django_pgjobs_job set max_attempts = 1, queue = 'own' where status = 'pending'",
    )
    with Proxy(server.port) as proxy:
        through = json.dumps({"HOST": "127.0.0.1", "PORT": str(proxy.port)})
        supervisor = processes.supervisor("--claim", "transaction", PGJOBS_TEST_CONNECTION=through)
        eventually(lambda: processes.ledger.starts("asleep"), within=20)
        [child] = supervisor.children
        os.kill(child, signal.SIGKILL)
        eventually(lambda: ask(server, "select from django_pgjobs_worker where death = 'signal 9'"))
        # Or else the child that came after it may take the job before the attempt is counted.
        ask(server, "insert into django_pgjobs_queue (name, paused_at) values ('own', now())")
        server.down("immediate")
        down, before = time.monotonic(), proxy.calls
        eventually(lambda: time.monotonic() - down > 2.5)
        assert proxy.calls - before < 30, "that child asks now and then too"
        server.up()
        eventually(lambda: statuses(server)["asleep"] == ("failed", 1), within=10)
        assert supervisor.stop() == 0


def test_missing_tables_are_an_error_at_the_start(server, tmp_path):
    empty = urlsplit(server.url)._replace(path="/template1").geturl()
    with Processes({**os.environ, "PGJOBS_TEST_URL": empty}, tmp_path) as processes:
        supervisor = processes.supervisor()
        assert supervisor.wait() == 1
        assert "Run manage.py migrate first" in supervisor.output
        assert "Traceback" not in supervisor.output


def test_a_server_that_does_not_answer_is_left_and_does_not_delay_a_stop(server, processes):
    with Proxy(server.port) as proxy:
        through = json.dumps({"HOST": "127.0.0.1", "PORT": str(proxy.port)})
        options = {"pgjobs": FAST, "PGJOBS_TEST_CONNECTION": through}
        supervisor = processes.supervisor("--shutdown-timeout", "1", **options)
        assert_jobs_flow(server, processes, "before")
        children = supervisor.children
        proxy.silence()  # what is open stays so, and nothing comes through; new ones work
        assert_jobs_flow(server, processes, "after")
        assert supervisor.children == children
        proxy.silence(new=True)
        enqueue(server, "hold", "never")
        asked = time.monotonic()
        assert supervisor.stop() in (0, 1)
        assert time.monotonic() - asked < 1 + 2 + 1 + 2
