"""The handlers of the benchmarks."""

from __future__ import annotations

import os
import signal
import time

from django.apps import apps
from django.db import connection

from benchmarks.running import READ, note_start
from django_pgjobs import job

if apps.is_installed("django_pgjobs.pgmq"):  # in the scenario of that name
    from benchmarks import consumers  # noqa: F401 -- declares them


@job
def noop(i: int) -> None:
    """Do nothing: what is left is the cost of the queue."""


@job
def note(i: int) -> None:
    """Note when it starts."""
    note_start(i)


@job
def read(i: int) -> None:  # noqa: ARG001 -- as its payload is
    """Read 1 MB."""
    with connection.cursor() as cursor:
        cursor.execute(READ)
        cursor.fetchall()


@job
def nap(i: int) -> None:  # noqa: ARG001 -- as its payload is
    """Take 10 ms, without work."""
    time.sleep(0.01)


@job(retry=[0.5])
def poison() -> None:
    """Kill the process that runs it."""
    os.kill(os.getpid(), signal.SIGKILL)


@job
def ping(i: int) -> None:
    """Report the start to the harness that runs this beside other queues."""
    from handlers import ping as report  # type: ignore[import-not-found]  # noqa: PLC0415 -- its own

    report(i)
