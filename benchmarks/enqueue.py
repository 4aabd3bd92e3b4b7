"""enqueue: single jobs, each committed in a transaction of its own, from 1 and from 4 threads."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from benchmarks.contenders import Contender
from benchmarks.server import Server

THREADS = {"1 thread": 1, "4 threads": 4}
UNITS = dict.fromkeys(THREADS, "jobs/s")


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"jobs enqueued one by one for {options.seconds:g} s, a transaction each"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Enqueue into a fresh database for each number of threads."""
    rates = {}
    for name, threads in THREADS.items():
        with server.database(contender) as database:
            request = {"threads": threads, "seconds": options.seconds}
            rates[name] = contender.ask(database, "enqueue", **request)["rate"]
    return rates
