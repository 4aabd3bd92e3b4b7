"""django-pgjobs as it is measured: its public interface, on Django's and its own defaults."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections, transaction

from benchmarks import running
from benchmarks.contenders import PRODUCT
from benchmarks.process import (
    answer,
    calls_a_second,
    calls_of_processes,
    pages_of,
    peak_memory,
)

WORKER = ("-m", "django", "runjobs")


def setup() -> dict[str, Any]:
    """Make the tables."""
    call_command("migrate", verbosity=0)
    return {}


def enqueue(threads: int, seconds: float, *, prepared: bool) -> dict[str, Any]:
    """Enqueue no-ops one by one, a transaction each."""
    from benchmarks.jobs import noop  # noqa: PLC0415 -- once the apps are loaded

    if prepared:
        connections.settings["default"]["OPTIONS"] |= {
            "server_side_binding": True,
            "prepare_threshold": 5,
        }

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


def enqueue_either(seconds: float, *, tasks: bool) -> dict[str, Any]:
    """Enqueue no-ops one by one, as tasks or as jobs."""
    from benchmarks import declared, jobs  # noqa: PLC0415 -- once the apps are loaded

    noop: Any = declared.noop if tasks else jobs.noop

    def connect() -> Callable[[int], object]:
        return lambda i: noop.enqueue(i=i)

    return {"rate": calls_a_second(1, seconds, connect)}


def queue_either(jobs: int, *, tasks: bool) -> dict[str, Any]:
    """Queue no-ops as rows that `enqueue()` of tasks or of jobs would write."""
    kind, meta = "noop", "{}"
    if tasks:
        kind, meta = "benchmarks.declared.noop", '{"task": {"backend": "default"}}'
    with connection.cursor() as cursor:
        cursor.execute(
            """insert into django_pgjobs_job (kind, meta, payload)
            select %s, %s::jsonb, jsonb_build_object('i', n) from generate_series(1, %s) n""",
            [kind, meta, jobs],
        )
        cursor.execute("analyze django_pgjobs_job")
    return {}


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


def polling(jobs: int) -> dict[str, Any]:
    """Enqueue jobs one by one beside a worker that hears nothing."""
    from benchmarks.jobs import note  # noqa: PLC0415 -- once the apps are loaded

    def enqueue(i: int) -> float:
        note.enqueue(i=i)
        return time.monotonic()

    command = (*WORKER, "--no-notify")
    return {"delays": running.delays(command, enqueue, jobs, running.POLLING_PAUSES)}


def writers(processes: int, seconds: float, *, notify: bool) -> dict[str, Any]:
    """Enqueue no-ops one by one from many processes, with or without wake-ups."""
    from benchmarks.jobs import noop  # noqa: PLC0415 -- once the apps are loaded

    def connect() -> Callable[[int], object]:
        return lambda i: noop.enqueue(i=i)

    settings.PGJOBS = {"NOTIFY": notify}
    return {"rate": calls_of_processes(processes, seconds, connect)}


def claim_cost(queues: list[str], limit: int, times: int) -> dict[str, Any]:
    """Claim again and again what is due, as a worker does at first, and undo it."""
    from django_pgjobs.claims import Claimer  # noqa: PLC0415 -- once the apps are loaded
    from django_pgjobs.sessions import execute_on_django  # noqa: PLC0415 -- likewise

    [(worker,)] = _execute(
        "insert into django_pgjobs_worker (host, pid, threads) values ('', 0, 8) returning id"
    )
    plain, asked = execute_on_django("default"), []

    def claim(execute: Callable[[str, Any], Any]) -> int:
        with transaction.atomic():
            claimed = len(Claimer("default", worker, queues).claim(execute, limit))
            transaction.set_rollback(True)
        return claimed

    def timed(sql: str, params: Any) -> Any:
        asked.append((sql, params))
        begin = time.perf_counter()
        rows = plain(sql, params)
        seconds.append(time.perf_counter() - begin)
        return rows

    seconds: list[float] = []
    counts = {claim(timed) for _ in range(times)}
    with transaction.atomic():
        pages = pages_of(
            _execute(f"explain (analyze, buffers, format json) {asked[0][0]}", asked[0][1])
        )
        transaction.set_rollback(True)
    return {"seconds": seconds, "pages": pages, "claimed": min(counts)}


def memory(jobs: int, threads: int) -> dict[str, Any]:
    """Watch the memory of a worker that works on all jobs."""
    command = (*WORKER, "--drain", "--threads", str(threads))
    return running.growth(command, jobs, PRODUCT.finished)


def idle(seconds: float) -> dict[str, Any]:
    """Watch a worker that has nothing to do."""
    return running.idle(WORKER, os.environ["BENCHMARK_URL"], seconds)


def _execute(sql: str, params: Any = None) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall()


VERBS = (
    *(setup, enqueue, enqueue_many, enqueue_either, queue_either),
    *(latency, polling, writers, claim_cost, memory, idle),
)

if __name__ == "__main__":
    django.setup()
    answer({f.__name__: f for f in VERBS})
