"""The handlers of the benchmarks."""

from __future__ import annotations

from django_pgjobs import job


@job
def noop(i: int) -> None:
    """Do nothing: what is left is the cost of the queue."""
