"""No connection is to be had, on the server or in a pool: what is open goes on, and nothing is charged."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from example_project.postgres import EmbeddedPostgres
from tests.acceptance.conftest import processes_on
from tests.acceptance.test_silent_backends import CLAIMS
from tests.processes import FAST, Processes
from tests.waiting import eventually

pytestmark = pytest.mark.newest

ROLE = "shop"  # superusers have connections of their own
MOST = 25


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(fsync=False, settings={"max_connections": str(MOST)}) as server:
        ask(server, f"create role {ROLE} login")
        ask(server, f"alter database postgres owner to {ROLE}")
        ask(server, f"grant all on schema public to {ROLE}")
        yield server


@pytest.fixture
def processes(server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Processes]:
    with processes_on(url(server), tmp_path) as processes:
        yield processes


def url(server: EmbeddedPostgres) -> str:
    return server.url.replace("postgres@", f"{ROLE}@")


def ask(server: EmbeddedPostgres, sql: str, *values: object) -> list[tuple]:
    with psycopg.connect(server.url, autocommit=True) as session:
        cursor = session.execute(sql, values)
        return cursor.fetchall() if cursor.description else []


def enqueue(server: EmbeddedPostgres, kind: str, jobs: int, prefix: str = "") -> None:
    ask(
        server,
        "insert into django_pgjobs_job (kind, payload, max_attempts) select %s, "
        "jsonb_build_object('key', %s::text || n), 1 from generate_series(1, %s) n",
        *(kind, prefix, jobs),
    )


def counts(server: EmbeddedPostgres) -> Counter[tuple[str, int]]:
    return Counter(ask(server, "select status, attempts from django_pgjobs_job"))


def last_beat(server: EmbeddedPostgres) -> object:
    [(beat,)] = ask(
        server, "select max(heartbeat_at) from django_pgjobs_worker where died_at is null"
    )
    return beat


@contextmanager
def crowd(server: EmbeddedPostgres, limit: str) -> Iterator[None]:
    """Leave no connection to anybody, the way that `limit` says."""
    with ExitStack() as stack:
        if limit == "of the role":
            ask(server, f"alter role {ROLE} connection limit 1")
            stack.callback(ask, server, f"alter role {ROLE} connection limit -1")
        else:
            stack.callback(lambda: [session.close() for session in held])
            held: list[psycopg.Connection] = []
            with suppress(psycopg.OperationalError):
                while True:
                    held.append(psycopg.connect(url(server), application_name="crowd"))
        yield


def cut(server: EmbeddedPostgres, queries: str) -> int:
    """Terminate the worker's connections whose last statement is like this."""
    return len(
        ask(
            server,
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name = 'pgjobs-test-process' and query ~ %s",
            queries,
        )
    )


@pytest.mark.parametrize("limit", ["of the server", "of the role"])
def test_a_worker_goes_on_with_the_connections_that_it_has(server, processes, limit):
    supervisor = processes.supervisor("--threads", "2", pgjobs=FAST)
    enqueue(server, "hold", 1, "across")
    eventually(lambda: processes.ledger.starts("across1"), within=20)
    [child] = supervisor.children
    with crowd(server, limit):
        enqueue(server, "record", 100)
        eventually(lambda: counts(server)["done", 1] == 100)
        beat = last_beat(server)
        eventually(lambda: last_beat(server) > beat)
        if limit == "of the role":  # what is lost now cannot be replaced: no claims, no loss either
            assert cut(server, CLAIMS) >= 1
            enqueue(server, "record", 20, "late")
            eventually(lambda: "cannot be reached" in supervisor.output)
            beat, began = last_beat(server), time.monotonic()
            eventually(lambda: time.monotonic() - began > 3)  # longer than the lease
            assert last_beat(server) > beat
            assert counts(server)["pending", 0] == 20
        else:
            enqueue(server, "record", 20, "late")
    free = time.monotonic()
    eventually(lambda: counts(server)["done", 1] == 120)
    assert time.monotonic() - free < 10
    processes.open_gate("across1")
    eventually(lambda: counts(server) == {("done", 1): 121})
    assert Counter(e.key for e in processes.ledger.starts()).most_common(1)[0][1] == 1
    assert supervisor.children == [child]
    assert supervisor.stop() == 0


@pytest.mark.parametrize("limit", ["of the server", "of the role"])
def test_a_supervisor_that_starts_into_a_crowd_waits_for_its_end(server, processes, limit):
    enqueue(server, "record", 20)
    with crowd(server, limit):
        if limit == "of the role":  # which leaves one: have it taken
            with psycopg.connect(url(server)):
                supervisor = start_in_vain(processes)
        else:
            supervisor = start_in_vain(processes)
        assert counts(server) == {("pending", 0): 20}
    free = time.monotonic()
    eventually(lambda: counts(server) == {("done", 1): 20})
    assert time.monotonic() - free < 10
    assert supervisor.stop() == 0


def start_in_vain(processes):
    supervisor = processes.supervisor(pgjobs=FAST)
    eventually(lambda: "The keeper cannot reach the database" in supervisor.output, within=20)
    return supervisor


def test_a_worker_without_a_supervisor_says_why_and_exits(server, processes):
    with crowd(server, "of the server"):
        worker = processes.worker()
        assert worker.wait() == 1
    assert "cannot be reached" in worker.output
    assert "slots" in worker.output
    assert "Traceback" not in worker.output


def test_handlers_that_hold_the_whole_pool_hold_up_no_heartbeat(server, processes):
    """Nor a claim nor a settle: jobs without the ORM go on beside them."""
    pool = {"OPTIONS": {"pool": {"min_size": 1, "max_size": 2, "timeout": 60}}}
    worker = processes.worker(
        *("--threads", "3"), pgjobs=FAST, PGJOBS_TEST_CONNECTION=json.dumps(pool)
    )
    enqueue(server, "hold_in_transaction", 2, "all")
    eventually(lambda: len(processes.ledger.starts()) == 2, within=20)
    idle = "select 1 from pg_stat_activity where state = 'idle in transaction' and usename = %s"
    assert len(eventually(lambda: ask(server, idle, ROLE))) == 2
    beat, began = last_beat(server), time.monotonic()
    enqueue(server, "record", 10, "beside")
    eventually(lambda: counts(server)["done", 1] == 10)
    eventually(lambda: time.monotonic() - began > 3)  # longer than the lease
    assert last_beat(server) > beat
    for key in ("all1", "all2"):
        processes.open_gate(key)
    eventually(lambda: counts(server) == {("done", 1): 12})
    assert worker.stop() == 0
