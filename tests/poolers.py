"""A PgBouncer of a test's own, before a server of this machine or any other that it can reach.

It listens on the loopback interface, runs as an unprivileged user, and ends with the process that
started it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from example_project.postgres_guardian import free_port
from tests.certificates import make_certificate
from tests.waiting import eventually

# As an unprivileged user PostgreSQL's own way is taken: `nobody`, where root runs the tests. A change
# of user clears the death signal, so that comes last.
START = """
import ctypes, os, sys
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(int(sys.argv[2])), os.setuid(int(sys.argv[1]))
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
os.execv(sys.argv[3], sys.argv[3:])
"""

needs_pgbouncer = pytest.mark.skipif(
    not shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin"),
    reason="pgbouncer is not installed (apt-get install pgbouncer)",
)


class Pooler:
    """A PgBouncer that may be killed and started again on its port."""

    def __init__(
        self,
        url: str,
        *,
        mode: str = "transaction",
        size: int = 20,
        tls: bool = False,
        **options: str,
    ) -> None:
        self._tls = tls
        server = {k: v for k, v in conninfo_to_dict(url).items() if k in _NAMES}
        self._server = " ".join(f"{name}={value}" for name, value in server.items())
        self._options = {
            "pool_mode": mode,
            "default_pool_size": str(size),
            "max_client_conn": "500",
            "server_login_retry": "1",
            "auth_type": "any",
            "listen_addr": "127.0.0.1",
            "unix_socket_dir": "",
            **options,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="pgjobs-pgbouncer-", dir="/tmp"))
        self.port = free_port()
        options = {**self._options, "listen_port": self.port}
        if self._tls:
            certificate, key = make_certificate(self.folder)
            options |= {
                "client_tls_sslmode": "require",
                "client_tls_cert_file": certificate,
                "client_tls_key_file": key,
            }
        lines = [
            "[databases]",
            f"* = {self._server}",
            "[pgbouncer]",
            *(f"{name} = {value}" for name, value in options.items()),
        ]
        (self.folder / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def address(self) -> dict[str, str]:
        """What an entry of DATABASES needs to go through it."""
        return {"HOST": "127.0.0.1", "PORT": str(self.port)}

    def start(self) -> None:
        account = pwd.getpwnam("nobody")
        if os.geteuid() == 0:
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, account.pw_uid, account.pw_gid)
        ids = [str(account.pw_uid), str(account.pw_gid)]
        program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        assert program
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", START, *ids, program, self.folder / "pgbouncer.ini"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        eventually(self._answers)

    def kill(self) -> None:
        """End it as a crash does."""
        assert self._process
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(10)
        self._process = None

    def _answers(self) -> bool:
        assert self._process
        assert self._process.poll() is None, self.log
        with (
            suppress(psycopg.Error),
            psycopg.connect(
                f"host=127.0.0.1 port={self.port} dbname=pgbouncer user=pgbouncer",
                connect_timeout=5,
            ),
        ):
            return True
        return "listening on 127.0.0.1" in self.log


_NAMES = ("host", "port", "user", "password")
