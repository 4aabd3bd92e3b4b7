"""Processes that need not import Django: a server has done so, and forks into each of them.

Tests start hundreds, and four fifths of what a start costs are these imports. The server knows nothing of
the product and of settings: these are imported by each process for itself, with the faults that it is given.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

POSSIBLE = hasattr(os, "pidfd_open")  # on Linux
# What these import is nearly all that a process imports besides the product.
IMPORTED = (
    "django.contrib.auth.apps",
    "django.contrib.contenttypes.apps",
    "django.contrib.postgres.fields",
    "django.core.management",
    "django.db.backends.postgresql.base",
    "django.forms",
    "django.template.backends.django",
    "django.views.debug",
)


class Forked:
    """A process as `subprocess.Popen` has it, forked from the server, whose child it is."""

    def __init__(self, arguments: list[str], environment: dict[str, str], output: Path) -> None:
        """Start `python -m django` with these arguments; both streams go to `output`."""
        self.returncode: int | None = None
        self.pid: int = _server().ask([arguments, environment, str(output)])

    def poll(self) -> int | None:
        """Return the exit status, once there is one."""
        if self.returncode is None:
            self.returncode = _server().ask(self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit status.

        Raises:
            subprocess.TimeoutExpired: it has not ended within so many seconds.

        """
        if self.poll() is None:
            descriptor = os.pidfd_open(self.pid)  # the id is its own until poll() has seen the end
            try:
                select.select([descriptor], [], [], timeout)
            finally:
                os.close(descriptor)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class _Server:
    """The server, as a process of this one that ends with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forking"],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONPATH": "", "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        atexit.register(self._process.communicate)  # the end of its orders is its end

    def ask(self, question: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:  # one question at a time
            print(json.dumps(question), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())


@functools.cache
def _server() -> _Server:
    return _Server()


def _serve() -> None:
    """Fork for every order, and tell the exit status of every process asked about.

    Returns in each forked process, as what was ordered.
    """
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()  # a collection in a forked process need not touch, and thereby copy, all that
    for line in sys.stdin:
        question = json.loads(line)
        if isinstance(question, int):
            pid, status = os.waitpid(question, os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif not (answer := os.fork()):
            return _become(*question)
        sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.exit()


def _become(arguments: list[str], environment: dict[str, str], output: str) -> None:
    """Have the streams, the environment and the arguments of a process of one's own."""
    os.setsid()
    for descriptor, path in (0, os.devnull), (1, output):
        file = os.open(path, os.O_RDWR)
        os.dup2(file, descriptor)
        os.close(file)
    os.dup2(1, 2)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[1:1] = environment["PYTHONPATH"].split(os.pathsep)
    sys.argv[1:] = arguments
    sys.orig_argv = [sys.executable, "-m", "django", *arguments]


if __name__ == "__main__":
    _serve()
    runpy.run_module("django", run_name="__main__", alter_sys=True)
