"""enqueue_many: many jobs in one call and one transaction, with their ids returned.

The product validates every payload; the raw queue sends what it is given.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from benchmarks.contenders import BenchmarkError, Contender
from benchmarks.server import Server

UNITS = {"enqueue_many": "jobs/s", "peak memory": "MB"}


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"{options.bulk:,} jobs in one call, ids returned"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Enqueue into a fresh database once."""
    with server.database(contender) as database:
        answer = contender.ask(database, "enqueue_many", jobs=options.bulk)
    if answer["ids"] != options.bulk:
        msg = f"{contender.name} must return {options.bulk} ids, got {answer['ids']}."
        raise BenchmarkError(msg)
    return {"enqueue_many": options.bulk / answer["seconds"], "peak memory": answer["memory"]}
