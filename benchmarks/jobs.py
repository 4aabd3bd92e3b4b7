"""The handlers of the benchmarks."""

from __future__ import annotations

from django.db import connection

from benchmarks.running import READ, note_start
from django_pgjobs import job


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
def ping(i: int) -> None:
    """Report the start to the harness that runs this beside other queues."""
    from handlers import ping as report  # type: ignore[import-not-found]  # noqa: PLC0415 -- its own

    report(i)
