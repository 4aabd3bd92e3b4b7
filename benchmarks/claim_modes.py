"""claim_modes: queued no-ops for one worker process that claims by lease, and for one that claims by transaction.

Claimed by transaction, each job is a transaction of its own. The raw queue has no such thing, so it is compared with
nothing. Each mode goes first in every other round.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Mapping

from benchmarks.contenders import PRODUCT, Contender
from benchmarks.drain import drain, rate
from benchmarks.server import Server

CONTENDERS = (PRODUCT,)
MODES = ("lease", "transaction")
UNITS = {"lease": "jobs/s", "transaction": "jobs/s", "transaction of lease": "%"}


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"{options.jobs // 10:,} queued no-ops, claimed by lease and by transaction"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Measure both modes in each round; the median of its ratios counts."""
    jobs = options.jobs // 10
    rates: dict[str, list[float]] = {mode: [] for mode in MODES}
    for number in range(options.rounds):
        for mode in MODES[:: -1 if number % 2 else 1]:
            with server.database(contender, jobs) as database:
                finished = drain(contender, database, options, jobs, 1, f"--claim={mode}")
                rates[mode].append(rate(finished))
    pairs = zip(rates["transaction"], rates["lease"], strict=True)
    return {
        **{mode: statistics.median(values) for mode, values in rates.items()},
        "transaction of lease": 100 * statistics.median(t / p for t, p in pairs),
    }
