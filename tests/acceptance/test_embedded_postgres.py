"""The embedded PostgreSQL of the demo and the tests: it starts anywhere and leaves nothing behind."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from example_project import postgres_guardian
from example_project.postgres import EmbeddedPostgres, EmbeddedPostgresError, find_binaries
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parents[2]
# It runs a server, says where, and waits to be ended in one way or another.
PARENT = """
from example_project.postgres import EmbeddedPostgres
with EmbeddedPostgres(fsync=False) as server:
    print(server.port, server.folder, server._guardian.pid, flush=True)
    input()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(fsync=False, settings={"max_connections": "17"}) as server:
        yield server


@contextmanager
def parent_process(*command: str) -> Iterator[tuple[subprocess.Popen[str], int, Path, int]]:
    with subprocess.Popen(
        [sys.executable, *(command or ("-c", PARENT))],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            port, folder, guardian = process.stdout.readline().split()
            yield process, int(port), Path(folder), int(guardian)
        finally:
            process.kill()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def ask(server: EmbeddedPostgres, question: str) -> object:
    with psycopg.connect(server.url) as connection:
        row = connection.execute(question).fetchone()
        assert row
        return row[0]


def test_it_runs_with_the_settings_asked_for(server):
    assert ask(server, "show max_connections") == "17"
    assert ask(server, "show fsync") == "off"


def test_it_is_durable_unless_told_otherwise():
    with EmbeddedPostgres() as server:
        assert ask(server, "show fsync") == "on"
        assert ask(server, "show synchronous_commit") == "on"


def test_it_listens_on_the_loopback_interface_only(server):
    assert ask(server, "show listen_addresses") == "127.0.0.1"
    assert ask(server, "show unix_socket_directories") == ""


def test_its_folder_is_closed_to_other_users(server):
    assert stat.S_IMODE(server.folder.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root must change to another user")
def test_as_root_it_runs_under_an_unprivileged_user(server):
    owner = Path(f"/proc/{server.pid}").stat().st_uid
    assert owner == server.folder.stat().st_uid == pwd.getpwnam("nobody").pw_uid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root must change to another user")
def test_as_root_it_copies_binaries_that_the_unprivileged_user_cannot_reach(tmp_path):
    package = find_binaries().parents[1]
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.exists():
            shutil.copytree(part, tmp_path / part.name)
    tmp_path.chmod(0o700)
    binaries = tmp_path / package.name / "pginstall" / "bin"
    server = postgres_guardian.Server(binaries, {"listen_addresses": "127.0.0.1"})
    try:
        server.up()
        assert server.folder in server.binaries.parents
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
    finally:
        server.close()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_keeps_port_and_data(server, mode):
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("drop table if exists kept")
        connection.execute("create table kept as select 42 as answer")
    port, pid = server.port, server.pid
    server.restart(mode)
    assert server.port == port
    assert server.pid != pid
    assert ask(server, "select answer from kept") == 42


def test_nobody_answers_between_down_and_up(server):
    server.down("immediate")
    assert not listens(server.port)
    server.up()
    assert listens(server.port)


def test_two_at_once_do_not_meet(server):
    with EmbeddedPostgres(fsync=False) as other:
        assert other.port != server.port
        assert other.folder != server.folder
        assert ask(other, "show data_directory") != ask(server, "show data_directory")


def test_stop_removes_server_and_folder_and_may_be_repeated():
    server = EmbeddedPostgres(fsync=False).start()
    port, folder = server.port, server.folder
    server.stop()
    server.stop()
    assert not listens(port)
    assert not folder.exists()


def test_a_refused_setting_is_told_with_the_servers_own_words():
    with pytest.raises(EmbeddedPostgresError, match=r'invalid value .* "max_connections": "many"'):
        EmbeddedPostgres(settings={"max_connections": "many"}).start()


def test_a_server_that_was_not_started_says_so():
    with pytest.raises(EmbeddedPostgresError, match=r"must be started.*Call start\(\)"):
        EmbeddedPostgres().restart()


def test_another_port_is_taken_when_somebody_was_faster(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], postgres_guardian.free_port()])
        monkeypatch.setattr(postgres_guardian, "free_port", lambda: next(ports))
        server = postgres_guardian.Server(find_binaries(), {"listen_addresses": "127.0.0.1"})
        try:
            assert server.up()["port"] != taken.getsockname()[1]
        finally:
            server.close()


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_parent_is_killed(ending):
    with parent_process() as (process, port, folder, _guardian):
        process.send_signal(ending)
        process.wait(10)
        eventually(lambda: not listens(port))
        eventually(lambda: not folder.exists())


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_the_server_stops_when_its_guardian_is_killed():
    with parent_process() as (_process, port, folder, guardian):
        os.kill(guardian, signal.SIGKILL)
        eventually(lambda: not listens(port))
        shutil.rmtree(folder)


def test_nothing_is_left_when_a_forked_child_outlives_the_parent():
    forking = PARENT.replace(
        "    input()", "    import os, time; os.fork() or time.sleep(30); input()"
    )
    with parent_process("-c", forking) as (process, port, folder, _guardian):
        process.kill()
        process.wait(10)
        eventually(lambda: not listens(port))
        eventually(lambda: not folder.exists())
