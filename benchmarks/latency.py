"""latency: how long after its commit a job starts, with an idle worker that is woken.

The raw queue sends its NOTIFY in the transaction of the insert, which is the fastest way for one job
(and a slow one for many writers). The product sends it after the commit, as it always does.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Mapping

from benchmarks.contenders import Contender
from benchmarks.server import Server

UNITS = {"p50": "µs", "p99": "µs"}


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"from commit to handler start, {options.picks} jobs one after the other, idle worker"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Enqueue into a fresh database with a worker beside."""
    with server.database(contender) as database:
        delays = contender.ask(database, "latency", jobs=options.picks)["delays"]
    cuts = statistics.quantiles(delays, n=100, method="inclusive")
    return {"p50": cuts[49] * 1e6, "p99": cuts[98] * 1e6}
