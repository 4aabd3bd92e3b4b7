"""tasks: what the framework's tasks cost beside plain jobs, with everything at its default.

Enqueued are no-ops one by one, a transaction each; drained are queued no-ops, by one worker process. Each
round measures both, the other one first in every other round.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Mapping

from benchmarks.contenders import PRODUCT, Contender
from benchmarks.drain import drain, rate
from benchmarks.server import Server

CONTENDERS = (PRODUCT,)
KINDS = ("jobs", "tasks")
ACTS = ("enqueue", "drain")
UNITS = {
    f"{act}, {what}": "%" if what == "tasks of jobs" else "jobs/s"
    for act in ACTS
    for what in (*KINDS, "tasks of jobs")
}


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"tasks beside jobs: enqueued for {options.seconds:g} s, {options.jobs:,} drained"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Measure both kinds in each round; the median of its ratios counts."""
    rates: dict[str, list[float]] = {f"{act}, {kind}": [] for act in ACTS for kind in KINDS}
    for number in range(options.rounds):
        for kind in KINDS[:: -1 if number % 2 else 1]:
            with server.database(contender) as database:
                request = {"seconds": options.seconds, "tasks": kind == "tasks"}
                found = contender.ask(database, "enqueue_either", **request)
                rates[f"enqueue, {kind}"].append(found["rate"])
            with server.database(contender) as database:
                contender.ask(database, "queue_either", jobs=options.jobs, tasks=kind == "tasks")
                rates[f"drain, {kind}"].append(
                    rate(drain(contender, database, options, options.jobs))
                )
    found = {name: statistics.median(values) for name, values in rates.items()}
    for act in ACTS:
        pairs = zip(rates[f"{act}, tasks"], rates[f"{act}, jobs"], strict=True)
        found[f"{act}, tasks of jobs"] = 100 * statistics.median(t / j for t, j in pairs)
    return {name: found[name] for name in UNITS}
