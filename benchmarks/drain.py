"""drain: queued no-ops, one worker process that ends when none is left.

The database tells the time: from the first moment at which it recorded finished jobs to the last.
The jobs of that first moment are not counted, nor is the start of the process. The product's
worker is `manage.py runjobs --drain`, with everything on.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

import psycopg

from benchmarks.contenders import PRODUCT, BenchmarkError, Contender
from benchmarks.server import Server

UNITS = {"drain": "jobs/s"}
BATCH = 500  # of the raw queue; larger ones gain nothing


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"{options.jobs:,} queued no-ops, one worker process ({options.threads} threads)"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Drain a fresh database once."""
    with server.database(contender, options.jobs) as database:
        if contender is PRODUCT:
            threads = str(options.threads)
            contender.run(database, "-m", "django", "runjobs", "--drain", "--threads", threads)
        else:  # at least ten batches: the first of them is not counted
            contender.ask(database, "drain", batch=min(BATCH, max(1, options.jobs // 10)))
        with psycopg.connect(database) as connection:
            finished = connection.execute(contender.finished).fetchall()
    total = sum(jobs for _, jobs in finished)
    if total != options.jobs or len(finished) < 2:  # noqa: PLR2004 -- a first and a last moment
        msg = f"{contender.name} must finish {options.jobs} jobs in one attempt each, got {total}"
        raise BenchmarkError(f"{msg} in {len(finished)} batches.")
    (first, uncounted), (last, _) = finished[0], finished[-1]
    return {"drain": (total - uncounted) / (last - first).total_seconds()}
