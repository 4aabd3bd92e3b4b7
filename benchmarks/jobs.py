"""The handlers of the benchmarks."""

from __future__ import annotations

from benchmarks.running import note_start
from django_pgjobs import job


@job
def noop(i: int) -> None:
    """Do nothing: what is left is the cost of the queue."""


@job
def note(i: int) -> None:
    """Note when it starts."""
    note_start(i)
