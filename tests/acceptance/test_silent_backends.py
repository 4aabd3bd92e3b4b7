"""A backend falls silent in the middle of its client's life: the client gives it up and goes on.

It is stopped, so its system keeps the connection up and says nothing: as a proxy does that hangs, and
as no keepalive can tell. What the client had sent runs when the backend goes on, long after.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from example_project.postgres import EmbeddedPostgres
from tests.acceptance.conftest import processes_on
from tests.acceptance.test_server_restart import enqueue, statuses
from tests.processes import FAST, Processes
from tests.waiting import eventually

pytestmark = pytest.mark.newest

# How statements begin: the server shows a thousand bytes of each.
CLAIMS = r"^\s*with (recursive|lane)"
# The last of a worker's duties, after a heartbeat: half of that is how long it waits for a lock.
DUTIES = "lock_timeout = '250ms'.*from django_pgjobs_prune"
LISTENS = "^listen"


@pytest.fixture
def processes(server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Processes]:
    with processes_on(server.url, tmp_path) as processes:
        yield processes


def ask(server: EmbeddedPostgres, sql: str, *values: object) -> list[tuple]:
    with psycopg.connect(server.url, autocommit=True) as session:
        cursor = session.execute(sql, values)
        return cursor.fetchall() if cursor.description else []


def idle_backend(server: EmbeddedPostgres, queries: str) -> int:
    """Return the process of a worker's backend that waits for its next statement, such as this."""
    sql = """
        select pid from pg_stat_activity where application_name = 'pgjobs-test-process'
        and state = 'idle' and query ~ %s
    """
    [(pid,)] = eventually(lambda: ask(server, sql, queries), within=20)
    return int(pid)


@contextmanager
def silent(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def assert_gone(server: EmbeddedPostgres, pid: int) -> None:
    """It has read and run what it was sent, found its client gone, and ended."""
    eventually(lambda: not ask(server, "select 1 from pg_stat_activity where pid = %s", pid))


def test_a_claim_without_an_answer_is_made_again(server, processes):
    """And what the silent one claims when it goes on is given back."""
    supervisor = processes.supervisor("--threads", "2", pgjobs=FAST)
    enqueue(server, "record", "first")
    eventually(lambda: statuses(server)["first"] == ("done", 1), within=20)
    [child] = supervisor.children
    pid = idle_backend(server, CLAIMS)
    with silent(pid):
        enqueue(server, "record", "second")
        eventually(lambda: statuses(server)["second"] == ("done", 1))
        for n in range(20):
            enqueue(server, "hold", f"late-{n}")  # two run, and the others wait to be claimed
        eventually(lambda: len(processes.ledger.starts()) == 4)
    assert_gone(server, pid)
    for n in range(20):
        processes.open_gate(f"late-{n}")
    eventually(lambda: set(statuses(server).values()) == {("done", 1)}, within=20)
    assert len(processes.ledger.starts()) == 22
    assert supervisor.children == [child]
    assert supervisor.stop() == 0


def test_a_settle_without_an_answer_is_made_again(server, processes):
    supervisor = processes.supervisor("--threads", "1", pgjobs=FAST)
    pid = idle_backend(server, CLAIMS)
    enqueue(server, "hold", "x")
    eventually(lambda: processes.ledger.starts("x"), within=20)
    with silent(pid):
        processes.open_gate("x")
        eventually(lambda: statuses(server)["x"] == ("done", 1))
    assert_gone(server, pid)
    enqueue(server, "record", "y")
    eventually(lambda: statuses(server)["y"] == ("done", 1))
    assert len(processes.ledger.starts("x")) == 1
    assert supervisor.stop() == 0


def test_a_heartbeat_without_an_answer_is_sent_again_before_the_lease_is_over(server, processes):
    lease = {"LEASE": 8, "HEARTBEAT": 0.5, "POLL": 0.1}
    processes.reaper(pgjobs=lease)  # which would find a lease that is over at once
    worker = processes.supervisor(pgjobs=lease)
    enqueue(server, "hold", "x")
    eventually(lambda: processes.ledger.starts("x"), within=20)
    living = "select max(heartbeat_at) from django_pgjobs_worker where died_at is null"
    pid = idle_backend(server, DUTIES)
    with silent(pid):
        stopped = time.monotonic()
        # A reaping pass may be stopped instead, whose heartbeat had just gone well.
        beat = ask(server, living)
        eventually(lambda: ask(server, living) > beat, within=12)
        assert time.monotonic() - stopped < 8
    with suppress(AssertionError):
        assert_gone(server, pid)
    processes.open_gate("x")
    eventually(lambda: statuses(server)["x"] == ("done", 1))
    assert not ask(server, "select 1 from django_pgjobs_worker where died_at is not null")
    assert len(processes.ledger.starts("x")) == 1
    assert worker.stop() == 0


def test_a_listening_connection_without_an_answer_is_replaced(server, processes):
    """The poll goes on meanwhile."""
    worker = processes.worker(pgjobs={**FAST, "POLL": 0.5}, PGJOBS_TEST_LOG_LEVEL="INFO")
    with silent(idle_backend(server, LISTENS)):
        enqueue(server, "record", "x")
        eventually(lambda: statuses(server)["x"] == ("done", 1))
        assert worker.stop(within=15) == 0, "it delays no stop"
