"""The task of the benchmarks: for whoever has a framework that declares tasks."""

from __future__ import annotations

from django_pgjobs.tasks import task


@task
def noop(i: int) -> None:
    """Do nothing."""
