"""idle: what a worker costs that has nothing to do. Both listen, and poll once a second.

The product's worker is two processes with everything on: the supervisor, which keeps the lease, and
its child. Linux only.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from benchmarks.contenders import Contender
from benchmarks.server import Server

UNITS = {
    "transactions": "a minute",
    "CPU": "µs a second",
    "memory": "MB",
    "connections": "",
}


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"an idle worker for {options.idle:g} s"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Watch a worker on a fresh database."""
    with server.database(contender) as database:
        answer = contender.ask(database, "idle", seconds=options.idle)
    return {
        "transactions": answer["transactions"] / options.idle * 60,
        "CPU": answer["cpu"] / options.idle * 1e6,
        "memory": answer["memory"],
        "connections": answer["connections"],
    }
