"""polling: how late a job starts where no wake-up is ever sent. Both look for jobs once a second."""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Mapping

from benchmarks.contenders import Contender
from benchmarks.server import Server

UNITS = {"p50": "ms", "latest": "ms"}


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"from commit to handler start, {options.polls} jobs, without notifications"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Enqueue into a fresh database with a worker beside that does not listen."""
    with server.database(contender) as database:
        delays = contender.ask(database, "polling", jobs=options.polls)["delays"]
    return {"p50": statistics.median(delays) * 1e3, "latest": max(delays) * 1e3}
