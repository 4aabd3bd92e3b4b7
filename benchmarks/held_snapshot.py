"""held_snapshot: a drain while a forgotten transaction keeps the rows of the past alive.

Nothing can be vacuumed meanwhile, so the dead entries of all that was finished stay in the indexes. The
table also has many jobs that finished long ago.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from datetime import timedelta

import psycopg

from benchmarks.contenders import Contender
from benchmarks.drain import drain
from benchmarks.server import Server

UNITS = {"first": "jobs/s", "last": "jobs/s", "last of first": "%"}


def title(options: Namespace) -> str:
    """Say what is measured."""
    seconds = f"first and last {options.edge:g} s"
    return f"{options.held:,} no-ops, {options.backlog:,} finished, xmin held: {seconds}"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Drain a fresh database beside an idle transaction."""
    with (
        server.database(contender, options.held, options.backlog) as database,
        psycopg.connect(database) as holder,
    ):
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select from pg_class limit 1")  # takes its snapshot
        finished = drain(contender, database, options, options.held)
    edge = timedelta(seconds=options.edge)
    start, end = finished[0][0], finished[-1][0]
    first = sum(jobs for at, jobs in finished if start < at <= start + edge) / options.edge
    last = sum(jobs for at, jobs in finished if end - edge < at) / options.edge
    return {"first": first, "last": last, "last of first": last / first * 100}
