"""Real `manage.py` processes for tests: started, stopped, killed by their own id, and never left behind."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from django.db.models import F, Q

from django_pgjobs.models import Job, Worker
from tests import ledger
from tests.forking import POSSIBLE, Forked
from tests.waiting import eventually

ROOT = Path(__file__).parents[1]
FAST = {"LEASE": 2, "HEARTBEAT": 0.5, "POLL": 0.1}  # seconds: a death shows quickly
CALM = {"LEASE": 20, "HEARTBEAT": 2, "POLL": 0.1}  # nobody dies of a slow machine


def no_back_off() -> None:
    """Make what waits for its next attempt due now: tests move rows, not the clock."""
    Job.objects.delayed().reschedule(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))


def children_of(parent: int, *, zombies: bool = False) -> list[int]:
    """Return the living children of a process, or those that have exited and were not waited for."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, of = file.read_text().rpartition(")")[2].split()[:2]
            if int(of) == parent and (state in "ZX") == zombies:
                found.append(int(file.parent.name))
    return found


def lives(pid: int) -> bool:
    """Say whether a process is there and has not exited."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Process:
    """One process and what it said."""

    def __init__(
        self,
        arguments: list[str],
        environment: dict[str, str],
        output: Path,
        prefix: Sequence[str] = (),
    ) -> None:
        self._output = output
        self._popen: subprocess.Popen[bytes] | Forked
        with output.open("wb") as file:
            # Coverage is measured from the start of an interpreter.
            if POSSIBLE and not prefix and "COVERAGE_PROCESS_CONFIG" not in environment:
                self._popen = Forked(arguments, environment, output)
                return
            self._popen = subprocess.Popen(
                [*prefix, sys.executable, "-m", "django", *arguments],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group of its own, which Ctrl-C in the terminal spares
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def output(self) -> str:
        """Both output streams so far."""
        return self._output.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    @property
    def worker(self) -> Worker:
        """The row of the worker in this process, or of a supervisor's first one, once it is there.

        One in this process has had a heartbeat by then: before that it has no handler for signals yet.
        """

        def registered() -> Worker | None:
            assert self.alive, self.output
            pids = [self.pid, *self.children]
            ready = Q(heartbeat_at__gt=F("started_at")) | ~Q(pid=self.pid)
            workers = Worker.objects.filter(ready, pid__in=pids, died_at=None)
            return workers.order_by("-id").first()

        return eventually(registered, within=20)

    @property
    def children(self) -> list[int]:
        """The ids of the processes that it has started and that live."""
        return children_of(self.pid)

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the process and its children, as a terminal does."""
        os.killpg(self.pid, number)

    def wait(self, within: float = 20) -> int:
        """Wait for the end and return the exit status."""
        try:
            return self._popen.wait(within)
        except subprocess.TimeoutExpired:
            msg = f"Process {self.pid} must end within {within} s, got none. It said: {self.output}"
            raise AssertionError(msg) from None

    def stop(self, within: float = 20) -> int:
        """SIGTERM, then wait. Before a command has its handler in place it just ends, by the signal."""
        self.signal(signal.SIGTERM)
        return self.wait(within)

    def kill(self) -> None:
        """SIGKILL for the whole group, whether it is stopped or not."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait(10)


class Processes:
    """All processes of one test: they share a ledger and a folder, and end with the test."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self._folder = folder
        self.ledger = ledger.Ledger(folder / "ledger")
        self._environment = {
            **environment,
            "DJANGO_SETTINGS_MODULE": "tests.settings_worker",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]),
            "PYTHONUNBUFFERED": "1",
            "PGAPPNAME": "pgjobs-test-process",
            "PGJOBS_TEST_FOLDER": str(folder),
            ledger.VARIABLE: str(self.ledger.path),
        }
        self.started: list[Process] = []

    def start(
        self,
        *arguments: str,
        pgjobs: dict[str, Any] | None = None,
        prefix: Sequence[str] = (),
        **environment: str,
    ) -> Process:
        """Start a management command, by a `prefix` that executes it; `environment` adds variables."""
        output = self._folder / f"output-{len(self.started)}"
        settings = {"PGJOBS_TEST_PGJOBS": json.dumps(CALM if pgjobs is None else pgjobs)}
        variables = {**self._environment, **settings, **environment}
        process = Process(list(arguments), variables, output, prefix)
        self.started.append(process)
        return process

    def worker(self, *arguments: str, **options: Any) -> Process:
        """Start `runjobs` as one process, which is the worker."""
        return self.start("runjobs", "--processes", "0", *arguments, **options)

    def supervisor(self, *arguments: str, **options: Any) -> Process:
        """Start `runjobs` as it is by default: a supervisor with workers as its children."""
        return self.start("runjobs", *arguments, **options)

    def reaper(self, *arguments: str, **options: Any) -> Process:
        """Start `reapjobs`; without arguments it loops, five times a second."""
        return self.start("reapjobs", *(arguments or ("--interval", "0.2")), **options)

    def open_gate(self, key: object) -> None:
        """Let the handler `hold(key)` go on."""
        (self._folder / f"gate-{key}").touch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.started:
            process.kill()
