"""drain: queued no-ops, one worker process that ends when none is left.

The database tells the time: from the first moment at which it recorded finished jobs to the last.
The jobs of that first moment are not counted, nor is the start of the process. The product's
worker is `manage.py runjobs --drain`, with everything on.
"""

from __future__ import annotations

import datetime
from argparse import Namespace
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import psycopg

from benchmarks.contenders import PRODUCT, BenchmarkError, Contender
from benchmarks.server import Server

UNITS = {"drain": "jobs/s"}
BATCH = 500  # of the raw queue; larger ones gain nothing

Finished = list[tuple[datetime.datetime, int]]  # moments, and how many jobs finished then


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"{options.jobs:,} queued no-ops, one worker process ({options.threads} threads)"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Drain a fresh database once."""
    with server.database(contender, options.jobs) as database:
        return {"drain": rate(drain(contender, database, options, options.jobs))}


def drain(
    contender: Contender,
    database: str,
    options: Namespace,
    jobs: int,
    processes: int = 1,
    *more: str,
) -> Finished:
    """Work on the next so many jobs, with `more` options of the product; return when they finished."""
    if contender is PRODUCT:
        command = ["-m", "django", "runjobs", "--drain", "--threads", str(options.threads)]
        command += [f"--processes={processes}", f"--max-jobs={-(-jobs // processes)}", *more]
        contender.run(database, *command)
    else:  # at least ten batches: the first of them is not counted
        request = {"batch": min(BATCH, max(1, jobs // 10)), "most": -(-jobs // processes)}
        with ThreadPoolExecutor(processes) as pool:
            running = [
                pool.submit(contender.ask, database, "drain", **request) for _ in range(processes)
            ]
            for each in running:
                each.result()
    with psycopg.connect(database) as connection:
        finished: Finished = connection.execute(contender.finished).fetchall()
    total = sum(count for _, count in finished)
    if total != jobs or len(finished) < 2:  # noqa: PLR2004 -- a first and a last moment
        msg = f"{contender.name} must finish {jobs} jobs in one attempt each, got {total}"
        raise BenchmarkError(f"{msg} in {len(finished)} batches.")
    return finished


def rate(finished: Finished) -> float:
    """Return the jobs a second between the first moment and the last."""
    (first, _), (last, _) = finished[0], finished[-1]
    return sum(count for _, count in finished[1:]) / (last - first).total_seconds()
