"""The process that owns one embedded PostgreSQL: it starts, restarts, stops and removes it.

`postgres.py` runs this file as a program of its own and talks to it in lines: a JSON order first,
then requests (`up`, `down MODE`), each answered by one JSON line. The end of its input, or the end of
the process that started it, means: stop the server and delete its folder.
Invariant: neither the server nor the folder outlives this process, and this process does not outlive
the one that asked for it. Needs nothing outside the standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

UNPRIVILEGED = "nobody"
SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
PORT_ATTEMPTS = 5
START_SECONDS = 60.0
STOP_SECONDS = 30.0
# Below the range that Linux and macOS take client ports from: while the server is down for a restart,
# no outgoing connection can be given its port (a client that retries could even connect to itself).
PORTS = range(20_000, 32_000)


class ServerError(Exception):
    """The server could not be prepared, started or stopped; the message is for the user."""


class PortTakenError(ServerError):
    """Somebody took the port between our look and the server's bind."""


class Server:
    """One data folder and the `postgres` process on it."""

    def __init__(self, binaries: Path, settings: dict[str, str], replica_of: str = "") -> None:
        self.binaries = binaries
        self.settings = settings
        self.replica_of = replica_of
        self.account = pwd.getpwnam(UNPRIVILEGED) if os.geteuid() == 0 else None
        self.folder: Path | None = None
        self.port: int | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def up(self) -> dict[str, Any]:
        """Start the server, on the port it had before if it had one."""
        if self.folder is None:
            self.folder = self._make_folder()
            self._make_binaries_readable()
            self._make_data()
        for attempt in range(1, PORT_ATTEMPTS + 1):
            port = self.port or free_port()
            try:
                self._start(port)
                break
            except PortTakenError:
                if attempt == PORT_ATTEMPTS:
                    raise
                time.sleep(0.2 * attempt)  # a restart keeps its port: give the other one time to go
        self.port = port
        return {"port": port, "pid": self.running.pid, "folder": str(self.folder)}

    def down(self, mode: str) -> dict[str, Any]:
        """Stop the server and keep its data."""
        self.running.send_signal(SIGNALS[mode])
        try:
            self.running.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            msg = f"The server must stop within {STOP_SECONDS} s of a {mode} shutdown, got no end. "
            raise ServerError(msg + "Close its clients or use immediate.") from None
        self.process = None
        return {}

    def close(self) -> None:
        """Stop the server at once and delete everything."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)  # immediate: nobody will read the data again
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def running(self) -> subprocess.Popen[bytes]:
        """The server's process, if there is one."""
        if self.process is None:
            msg = "The server must be running for this, got one that is down. Start it with up()."
            raise ServerError(msg)
        return self.process

    @property
    def _log(self) -> Path:
        return self._inside("log")

    def _inside(self, name: str) -> Path:
        assert self.folder is not None  # noqa: S101  up() makes the folder before anything else
        return self.folder / name

    def _make_folder(self) -> Path:
        for parent in dict.fromkeys([tempfile.gettempdir(), "/tmp"]):  # noqa: S108  made by mkdtemp
            folder = Path(tempfile.mkdtemp(prefix="pgjobs-postgres-", dir=parent))
            if self.account is not None:
                os.chown(folder, self.account.pw_uid, self.account.pw_gid)
            if self._can_use(folder):
                return folder
            folder.rmdir()
        msg = f"The folder for temporary files must be open to the user {UNPRIVILEGED!r}, "
        raise ServerError(msg + f"got {tempfile.gettempdir()!r}. Point TMPDIR at one that is.")

    def _can_use(self, folder: Path) -> bool:
        try:
            return self._run(["/bin/sh", "-c", ": > probe && rm probe"], folder).returncode == 0
        except OSError:
            return False

    def _make_binaries_readable(self) -> None:
        """Copy the binaries beside the data if the unprivileged user cannot run them where they are."""
        if self.account is None:
            return
        try:
            if self._run([str(self.binaries / "initdb"), "--version"]).returncode == 0:
                return
        except OSError:
            pass  # a parent folder is closed to that user
        package = self.binaries.parent.parent
        libraries = package.with_name(f"{package.name}.libs")  # found by a path relative to bin/
        target = self._inside("binaries")
        unused = shutil.ignore_patterns("include", "__pycache__", "*.a")
        for source in (package, libraries):
            if source.is_dir():
                shutil.copytree(source, target / source.name, symlinks=True, ignore=unused)
        self.binaries = target / self.binaries.relative_to(package.parent)
        for path in [target, *target.rglob("*")]:
            os.chown(path, self.account.pw_uid, self.account.pw_gid, follow_symlinks=False)

    def _make_data(self) -> None:
        data = f"--pgdata={self._inside('data')}"
        if self.replica_of:
            copy = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
            self._must("pg_basebackup", data, f"--dbname={self.replica_of}", *copy)
            return
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync"]
        locale = ["--locale=C"]
        if b"builtin" in self._must("initdb", "--help"):  # since PostgreSQL 17
            locale += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        self._must("initdb", data, *options, *locale)

    def _must(self, program: str, *arguments: str) -> bytes:
        done = self._run([str(self.binaries / program), *arguments])
        if done.returncode != 0:
            msg = f"{program} must succeed, got exit status {done.returncode}:\n"
            raise ServerError(msg + tail(done.stdout + done.stderr))
        return done.stdout

    def _start(self, port: int) -> None:
        options = [o for name, value in self.settings.items() for o in ("-c", f"{name}={value}")]
        where = ["-D", str(self._inside("data")), "-p", str(port)]
        with self._log.open("ab") as log:
            written_before = log.tell()
            process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603
                [str(self.binaries / "postgres"), *where, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509  this process has a single thread
                **self._child_options(),
            )
        self.process = process
        self._wait_until_ready(process, written_before)

    def _wait_until_ready(self, process: subprocess.Popen[bytes], written_before: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                self.process = None
                log = self._log.read_bytes()[written_before:]
                refused = PortTakenError if b"could not bind" in log else ServerError
                msg = f"PostgreSQL must start, got exit status {process.returncode}:\n"
                raise refused(msg + tail(log))
            if self._says_ready(process.pid):
                return
            time.sleep(0.02)
        msg = f"PostgreSQL must accept connections within {START_SECONDS} s, got none:\n"
        raise ServerError(msg + tail(self._log.read_bytes()))

    def _says_ready(self, pid: int) -> bool:
        """Read the state that the server keeps for pg_ctl: the pid in line 1, the status in line 8."""
        try:
            lines = (self._inside("data") / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        state = "".join(lines[7:8]).strip()
        return lines[:1] == [str(pid)] and state in ("ready", "standby")

    def _run(
        self, command: list[str], cwd: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        options = self._child_options() | {"stdin": subprocess.DEVNULL, "capture_output": True}
        options["cwd"] = cwd or self.folder
        return subprocess.run(command, check=False, **options)  # noqa: S603

    def _child_options(self) -> dict[str, Any]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        options: dict[str, Any] = {"cwd": self.folder, "env": environment | {"LC_ALL": "C"}}
        if self.account is not None:  # PostgreSQL refuses to run as root
            options |= {
                "user": self.account.pw_uid,
                "group": self.account.pw_gid,
                "extra_groups": [],
            }
        return options


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on now."""
    while True:
        port = PORTS[secrets.randbelow(len(PORTS))]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def die_with_parent() -> None:
    """Ask Linux to stop the server should this process be killed: the pipe cannot help then."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGQUIT)


def tail(output: bytes) -> str:
    """Return the last lines of a log."""
    return "\n".join(output.decode(errors="replace").splitlines()[-15:])


def requests() -> Iterator[list[str]]:
    """Yield what the parent asks for, until it ends."""
    parent = os.getppid()
    with open(0, "rb", buffering=0, closefd=False) as pipe:
        while os.getppid() == parent:  # a forked child of the parent may still hold the pipe open
            readable, _, _ = select.select([pipe], [], [], 1.0)
            if readable:
                line = pipe.readline()
                if not line:
                    return
                yield line.decode().split(maxsplit=1)


def main() -> None:
    """Serve the parent's requests, then clean up."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))  # by way of the `finally` below
    server: Server | None = None
    try:
        for verb, *argument in requests():
            try:
                if verb == "order":
                    order = json.loads(argument[0])
                    server = Server(Path(order["binaries"]), order["settings"], order["replica_of"])
                    answer: dict[str, Any] = {}
                else:
                    answer = getattr(server, verb)(*(a.strip() for a in argument))
            except Exception as error:  # noqa: BLE001  whatever it is, the parent shows it to the user
                answer = {"error": str(error) if isinstance(error, ServerError) else repr(error)}
            print(json.dumps(answer), flush=True)
    finally:
        if server is not None:
            server.close()


if __name__ == "__main__":
    main()
