"""The `manage.py` processes of the demo: each with a log, all of them gone when the demo has ended.

Invariant: neither a process nor the folder outlives the one that started them. In good order this
module ends them; otherwise `leash.py` does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

ROOT = Path(__file__).parents[1]
MANAGE = Path(__file__).with_name("manage.py")
LEASH = Path(__file__).with_name("leash.py")

PATIENCE = 60.0  # seconds that anything may take on a slow machine
STOP_SECONDS = 5.0
POLL = 0.05
SHOWN_LINES = 15

T = TypeVar("T")


class DemoError(Exception):
    """The demo cannot go on; the message is for the user."""


class Process:
    """One running `manage.py` command."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.popen = popen
        self.log = log

    @property
    def pid(self) -> int:
        """The process, which is also its process group."""
        return self.popen.pid

    def output(self) -> str:
        """Return what it has written so far."""
        return self.log.read_text(errors="replace")

    def tail(self) -> str:
        """Return the last lines of its log, under its name."""
        lines = self.output().splitlines()[-SHOWN_LINES:]
        return "\n".join([f"--- the end of the log of {self.name}:", *(lines or ["(empty)"])])


class Processes:
    """The running commands, and the folder where they and the shop keep their files."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """`environment` is that of the commands, to which the folder is added as SHOP_FOLDER."""
        self._environment = dict(environment)
        self._running: list[Process] = []

    def __enter__(self) -> Self:
        with _signals_put_off():
            self.folder = Path(tempfile.mkdtemp(prefix="pgjobs-demo-"))
            self._leash = subprocess.Popen(  # noqa: S603 -- our own file
                [sys.executable, "-I", "-S", LEASH, self.folder],
                stdin=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C is for the demo
            )
        self._environment["SHOP_FOLDER"] = str(self.folder)
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self._running:
            process.popen.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in list(self._running):
            with suppress(subprocess.TimeoutExpired):
                process.popen.wait(max(0.0, deadline - time.monotonic()))
            self.kill(process)
        self._leash.communicate()

    def start(self, name: str, *command: str, **environment: str) -> Process:
        """Start `manage.py COMMAND` and return at once."""
        log = self.folder / f"{name.replace(' ', '-')}.log"
        with log.open("wb") as file, _signals_put_off():
            popen = subprocess.Popen(  # noqa: S603 -- our own file
                [sys.executable, MANAGE, *command],
                cwd=ROOT,
                env={**self._environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            process = Process(name, popen, log)
            self._running.append(process)
            self._tell_leash("started", popen.pid)
        return process

    def run(self, name: str, *command: str, **environment: str) -> None:
        """Run `manage.py COMMAND` to its end; raise `DemoError` unless it succeeds in time."""
        process = self.start(name, *command, **environment)
        try:
            status = process.popen.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise DemoError(
                f"{name} must end within {PATIENCE:g} s, got no end.\n{process.tail()}"
            ) from None
        self._forget(process)
        if status:
            raise DemoError(f"{name} must succeed, got exit status {status}.\n{process.tail()}")

    def kill(self, process: Process) -> None:
        """Kill the process with SIGKILL, and those that it started; return when it is gone."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.popen.wait()
        self._forget(process)

    def wait_for(self, what: str, fact: Callable[[], T | None]) -> T:
        """Ask again and again until `fact()` is true, and return its answer.

        Raises:
            DemoError: it took too long, or a process ended meanwhile. The message has the ends of
                the logs.

        """
        deadline = time.monotonic() + PATIENCE
        while not (answer := fact()):
            self.check()
            if time.monotonic() > deadline:
                tails = "\n".join(process.tail() for process in self._running)
                raise DemoError(
                    f"Within {PATIENCE:g} s it must become true that {what}; it did not.\n{tails}"
                )
            time.sleep(POLL)
        return answer

    def check(self) -> None:
        """Raise `DemoError` if a process has ended that nobody ended."""
        for process in self._running:
            if (status := process.popen.poll()) is not None:
                raise DemoError(
                    f"The {process.name} must go on running, got its end with exit status {status}.\n"
                    f"{process.tail()}"
                )

    def _forget(self, process: Process) -> None:
        self._running.remove(process)
        self._tell_leash("ended", process.pid)

    def _tell_leash(self, verb: str, group: int) -> None:
        assert self._leash.stdin is not None  # noqa: S101 -- for mypy
        with suppress(BrokenPipeError):  # somebody killed the leash: the good order must do
            self._leash.stdin.write(f"{verb} {group}\n")
            self._leash.stdin.flush()


def exit_on_signals() -> None:
    """Let SIGTERM and SIGHUP end this process by an exception, as Ctrl-C does: it cleans up."""

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)


@contextmanager
def _signals_put_off() -> Iterator[None]:
    """Let signals wait until the end of the block: nobody would know of what is half made."""
    came: list[int] = []
    handlers = {
        ending: signal.signal(ending, lambda number, _frame: came.append(number))
        for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for ending, handler in handlers.items():
            signal.signal(ending, handler)
        for number in came:
            signal.raise_signal(number)
