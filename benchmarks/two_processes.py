"""two_processes: queued no-ops for one worker process, then as many for two at a time.

The product's two are children of one supervisor.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from benchmarks.contenders import Contender
from benchmarks.drain import drain, rate
from benchmarks.server import Server

UNITS = {"one": "jobs/s", "two": "jobs/s", "two of one": "%"}


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"{options.jobs:,} queued no-ops, one and two worker processes"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Drain a fresh database with one process, and one with two."""
    rates = []
    for processes in (1, 2):
        with server.database(contender, options.jobs) as database:
            rates.append(rate(drain(contender, database, options, options.jobs, processes)))
    one, two = rates
    return {"one": one, "two": two, "two of one": two / one * 100}
