"""enqueue: single jobs, each committed in a transaction of its own, from 1 and from 4 threads.

The raw queue prepares its INSERT. Django prepares nothing by default; "prepared" are the OPTIONS by which
it does, for databases without a pooler before them.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from benchmarks.contenders import Contender
from benchmarks.server import Server

RUNS = {
    "1 thread": (1, False),
    "4 threads": (4, False),
    "1 thread, prepared": (1, True),
    "4 threads, prepared": (4, True),
}
UNITS = dict.fromkeys(RUNS, "jobs/s")


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"jobs enqueued one by one for {options.seconds:g} s, a transaction each"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Enqueue into a fresh database for each of these."""
    rates = {}
    for name, (threads, prepared) in RUNS.items():
        with server.database(contender) as database:
            request = {"threads": threads, "seconds": options.seconds, "prepared": prepared}
            rates[name] = contender.ask(database, "enqueue", **request)["rate"]
    return rates
