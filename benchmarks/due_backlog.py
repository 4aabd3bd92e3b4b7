"""due_backlog: how much slower jobs are worked on where many more are due than where few are."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from benchmarks.contenders import Contender
from benchmarks.drain import drain, rate
from benchmarks.server import Server

UNITS = {"few": "jobs/s", "many": "jobs/s", "many of few": "%"}


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"{options.jobs:,} no-ops, with nothing else due and with {options.backlog:,} due"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Work on as many jobs of a short queue and of a long one."""
    rates = []
    for more in (0, options.backlog):
        with server.database(contender, options.jobs + more) as database:
            rates.append(rate(drain(contender, database, options, options.jobs)))
    few, many = rates
    return {"few": few, "many": many, "many of few": many / few * 100}
