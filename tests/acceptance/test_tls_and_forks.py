"""TLS streams are shared by nobody: not by the processes of a worker, nor by those that handlers fork."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from example_project.postgres import EmbeddedPostgres
from tests.certificates import make_certificate, needs_openssl
from tests.poolers import Pooler, needs_pgbouncer
from tests.processes import CALM, Processes
from tests.waiting import eventually

pytestmark = pytest.mark.newest

# The wheel's server is built without TLS: a packaged one has it, and so has a PgBouncer before the wheel's.
PACKAGED = max(Path("/usr/lib/postgresql").glob("1[5-9]/bin"), default=None)
# Not an end of file: a fork of multiprocessing ends without closing the connection of its own.
BROKEN = ("bad record", "decrypt")
JOBS = 10


@pytest.fixture(
    params=[
        pytest.param(
            "server",
            marks=pytest.mark.skipif(not PACKAGED, reason="no PostgreSQL in /usr/lib/postgresql"),
        ),
        pytest.param("pooler", marks=needs_pgbouncer),
    ]
)
def encrypted(request) -> Iterator[tuple[EmbeddedPostgres, dict[str, str], Any]]:
    """A server, how to reach it by TLS only, and whose log tells of it."""
    direct = request.param == "server"
    with ExitStack() as stack:
        server = stack.enter_context(
            EmbeddedPostgres(fsync=False, binaries=PACKAGED if direct else None)
        )
        if not direct:
            pooler = stack.enter_context(Pooler(server.url, mode="session", tls=True))
            yield server, pooler.address, pooler
            return
        certificate, key = make_certificate(server.folder)
        facts = {"ssl_cert_file": f"'{certificate}'", "ssl_key_file": f"'{key}'", "ssl": "on"}
        for name, value in facts.items():
            ask(server, f"alter system set {name} = {value}")
        ask(server, "select pg_reload_conf()")
        yield server, {"HOST": "127.0.0.1", "PORT": str(server.port)}, server


def ask(server: EmbeddedPostgres, sql: str) -> list[tuple]:
    with psycopg.connect(server.url, autocommit=True) as session:
        cursor = session.execute(sql)
        return cursor.fetchall() if cursor.description else []


@needs_openssl
def test_workers_and_what_their_handlers_fork_share_no_stream(encrypted, tmp_path):
    server, address, teller = encrypted
    kept = {"CONN_MAX_AGE": None, "OPTIONS": {"sslmode": "require"}}
    pool = {"OPTIONS": {"sslmode": "require", "pool": {"min_size": 1, "max_size": 2}}}
    way = {**address, **(kept if teller is server else pool)}
    with Processes({**os.environ, "PGJOBS_TEST_URL": server.url}, tmp_path) as processes:
        through = {"PGJOBS_TEST_CONNECTION": json.dumps(way)}
        assert processes.start("migrate", "--verbosity", "0", **through).wait(60) == 0
        supervisor = processes.supervisor(
            *("--processes", "2", "--threads", "2", "--max-jobs", "20"), pgjobs=CALM, **through
        )
        kinds = "unnest(array['record', 'fork', 'end_a_fork']) kind"
        ask(
            server,
            "insert into django_pgjobs_job (kind, payload, max_attempts) select kind, "  # noqa: S608
            f"jsonb_build_object('key', n::text), 1 from {kinds}, generate_series(1, {JOBS}) n",
        )
        final = "select kind, status, result, last_error from django_pgjobs_job where finished_at is not null"
        jobs = eventually(
            lambda: found if len(found := ask(server, final)) == 3 * JOBS else None, within=30
        )
        assert not [error for *_, error in jobs if error]
        ends = {result for kind, _, result, _ in jobs if kind == "end_a_fork"}
        assert ends == {-signal.SIGTERM}
        reports = [one for kind, _, result, _ in jobs if kind == "fork" for one in result]
        owners: dict[int, int] = {}
        for process, backend, is_encrypted in reports if teller is server else ():
            assert owners.setdefault(backend, process) == process, "a backend has one client"
            assert is_encrypted
        assert len(reports) == 4 * JOBS
        assert supervisor.stop() == 0
        assert "died" not in supervisor.output
    told = [line for line in teller.log.splitlines() if any(word in line for word in BROKEN)]
    assert not told
