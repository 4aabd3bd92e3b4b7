"""A standby takes over: workers find the new primary, and what had been done stays done."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from example_project.postgres import EmbeddedPostgres
from tests.processes import Processes
from tests.proxies import Proxy
from tests.waiting import eventually

pytestmark = pytest.mark.newest

SETTINGS = {"synchronous_commit": "on"}
STANDBY = "pgjobs_standby"
JOBS = 300


@pytest.fixture
def primary() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(fsync=False, settings=SETTINGS) as server:
        yield server


@pytest.fixture
def standby(primary: EmbeddedPostgres, processes: Processes) -> Iterator[EmbeddedPostgres]:
    """A standby without which the primary commits nothing."""
    url = f"{primary.url}?application_name={STANDBY}"
    with EmbeddedPostgres(fsync=False, settings=SETTINGS, replica_of=url) as server:
        for change in (f"synchronous_standby_names = '{STANDBY}'", "wal_receiver_timeout = '5s'"):
            ask(primary, f"alter system set {change}")
        ask(primary, "select pg_reload_conf()")
        synchronous = "select 1 from pg_stat_replication where sync_state = 'sync'"
        eventually(lambda: ask(primary, synchronous), within=30)
        yield server


@pytest.fixture
def processes(primary: EmbeddedPostgres, tmp_path: Path) -> Iterator[Processes]:
    with Processes({**os.environ, "PGJOBS_TEST_URL": primary.url}, tmp_path) as processes:
        assert processes.start("migrate", "--verbosity", "0").wait(60) == 0
        yield processes


def ask(server: EmbeddedPostgres, sql: str, params: Sequence[Any] | None = None) -> list[tuple]:
    with psycopg.connect(server.url, autocommit=True) as session:
        cursor = session.execute(sql, params)
        return cursor.fetchall() if cursor.description else []


def enqueue(server: EmbeddedPostgres, kind: str, jobs: int, key: str = "", **payload) -> None:
    with psycopg.connect(server.url) as session:
        session.execute(
            "insert into django_pgjobs_job (kind, payload, max_attempts) select %s, "
            "jsonb_build_object(%s::text, %s || n) || %s::jsonb, 3 from generate_series(1, %s) n",
            [kind, "name" if kind == "write_row" else "key", key, json.dumps(payload), jobs],
        )


def done(server: EmbeddedPostgres) -> set[int]:
    return {job for (job,) in ask(server, "select id from django_pgjobs_job where status = 'done'")}


def promote(standby: EmbeddedPostgres) -> float:
    assert ask(standby, "select pg_promote()") == [(True,)]
    return time.monotonic()


def make_due(server: EmbeddedPostgres) -> None:
    """What was running at the failover waits for its next attempt: tests move rows, not the clock."""
    ask(server, "update django_pgjobs_job set run_at = now() where status = 'pending'")


def all_final(server: EmbeddedPostgres) -> bool:
    make_due(server)
    return not ask(server, "select 1 from django_pgjobs_job where status in ('pending', 'running')")


def both(primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> str:
    """An address of both servers, of which the one is taken that can be written to."""
    return json.dumps(
        {
            "HOST": "127.0.0.1,127.0.0.1",
            "PORT": f"{primary.port},{standby.port}",
            "OPTIONS": {"target_session_attrs": "read-write"},
            "CONN_MAX_AGE": None,
        }
    )


def test_workers_go_on_with_the_new_primary_after_a_crash(primary, standby, processes):
    supervisor = processes.supervisor(
        *("--processes", "2", "--threads", "2"),
        PGJOBS_TEST_CONNECTION=both(primary, standby),
    )
    enqueue(primary, "record", JOBS, seconds=0.01)
    eventually(lambda: len(done(primary)) > 30, within=20)
    children = supervisor.children
    primary.down("immediate")
    started = {entry.key for entry in processes.ledger.starts()}
    promoted = promote(standby)
    before = done(standby)
    assert len(before) > 30
    eventually(lambda: done(standby) > before, within=20)
    assert time.monotonic() - promoted < 10
    eventually(lambda: all_final(standby), within=30)
    assert len(done(standby)) == JOBS, "what was enqueued and committed is there"
    starts = [entry.key for entry in processes.ledger.starts()]
    again = {key for key in starts if starts.count(key) > 1}
    assert len(again) <= 4, "only what was running at that moment is touched"
    assert again <= started
    assert supervisor.children == children
    assert supervisor.stop() == 0


def test_workers_leave_a_primary_that_is_read_only_now_and_stays_reachable(
    primary, standby, processes
):
    """Its connections go on, so that nothing but refusals tells the worker."""
    with Proxy(primary.port) as proxy:
        through = json.dumps({"HOST": "127.0.0.1", "PORT": str(proxy.port), "CONN_MAX_AGE": None})
        supervisor = processes.supervisor(
            *("--threads", "2"),
            PGJOBS_TEST_CONNECTION=through,
        )
        enqueue(primary, "record", 50)
        enqueue(primary, "write_row", 20, "before")
        eventually(lambda: len(done(primary)) == 70, within=20)
        [child] = supervisor.children
        ask(primary, "alter system set default_transaction_read_only = on")
        ask(primary, "select pg_reload_conf()")
        eventually(lambda: "refuse" in supervisor.output, within=20)
        options = {"PGJOBS_TEST_CONNECTION": through}
        alone = processes.worker(**options)
        late = processes.supervisor("--queues", "late", **options)
        eventually(lambda: "is refused by the database" in late.output, within=20)
        assert alone.wait() == 1
        assert "read-only" in alone.output
        assert "Traceback" not in alone.output
        promoted = promote(standby)
        assert done(primary) == done(standby)
        proxy._target = standby.port
        enqueue(standby, "record", 50, "after")
        eventually(lambda: len(done(standby)) > 70, within=20)
        assert time.monotonic() - promoted < 10
        beat = "select heartbeat_at from django_pgjobs_worker where pid = %s"
        last = ask(standby, beat, [child])
        eventually(lambda: ask(standby, beat, [child]) > last)
        enqueue(standby, "write_row", 20, "after")
        eventually(lambda: all_final(standby), within=20)
        assert len(done(standby)) == 140
        assert supervisor.children == [child]
        assert supervisor.stop() == 0
        ask(standby, "insert into django_pgjobs_job (kind, queue) values ('noop', 'late')")
        eventually(lambda: len(done(standby)) == 141)
        assert late.stop() == 0
