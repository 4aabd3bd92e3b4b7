"""django-pgjobs as it is measured: its public interface, on Django's and its own defaults."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import django
from django.core.management import call_command
from django.db import transaction

from benchmarks import running
from benchmarks.process import answer, calls_a_second, peak_memory

WORKER = ("-m", "django", "runjobs")


def setup() -> dict[str, Any]:
    """Make the tables."""
    call_command("migrate", verbosity=0)
    return {}


def fill(jobs: int) -> dict[str, Any]:
    """Queue no-ops."""
    from benchmarks.jobs import noop  # noqa: PLC0415 -- once the apps are loaded

    noop.enqueue_many({"i": i} for i in range(jobs))
    return {}


def enqueue(threads: int, seconds: float) -> dict[str, Any]:
    """Enqueue no-ops one by one, a transaction each."""
    from benchmarks.jobs import noop  # noqa: PLC0415 -- once the apps are loaded

    def connect() -> Callable[[int], object]:
        return lambda i: noop.enqueue(i=i)

    return {"rate": calls_a_second(threads, seconds, connect)}


def enqueue_many(jobs: int) -> dict[str, Any]:
    """Enqueue no-ops in one call: payloads validated, one transaction, ids returned."""
    from benchmarks.jobs import noop  # noqa: PLC0415 -- once the apps are loaded

    begin = time.perf_counter()
    ids = noop.enqueue_many({"i": i} for i in range(jobs))
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "ids": len(set(ids)), "memory": peak_memory()}


def latency(jobs: int) -> dict[str, Any]:
    """Enqueue jobs one by one beside an idle worker."""
    from benchmarks.jobs import note  # noqa: PLC0415 -- once the apps are loaded

    def enqueue(i: int) -> float:
        commits: list[float] = []
        with transaction.atomic():
            transaction.on_commit(lambda: commits.append(time.monotonic()))
            note.enqueue(i=i)
        return commits[0]

    return {"delays": running.delays(WORKER, enqueue, jobs)}


def idle(seconds: float) -> dict[str, Any]:
    """Watch a worker that has nothing to do."""
    return running.idle(WORKER, os.environ["BENCHMARK_URL"], seconds)


if __name__ == "__main__":
    django.setup()
    answer({f.__name__: f for f in (setup, fill, enqueue, enqueue_many, latency, idle)})
