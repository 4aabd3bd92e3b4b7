"""claim_cost: what one claim costs in a table of many future and finished jobs, and a few due ones.

Half of the future jobs are in the queue `default`, half of those of a higher priority than what is due;
the others are spread over 50 queues with 3 priorities each, and some are due in each of these 150
lanes. A claim takes 10 jobs, from one queue or from the 50 (the raw queue: from one of them), and is
rolled back. Pages are counted by EXPLAIN (ANALYZE, BUFFERS), which runs the statement too, and
compared with an allowance of 20 for each job claimed and 5 for each lane.
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Mapping
from typing import LiteralString

from benchmarks.contenders import PRODUCT, BenchmarkError, Contender
from benchmarks.server import Server

UNITS = {
    "1 queue, p99": "µs",
    "1 queue, pages of allowed": "%",
    "50 queues, p99": "µs",
    "50 queues, pages of allowed": "%",
}
QUEUES, PRIORITIES, LIMIT, DUE = 50, 3, 10, 1_000
_LANE = f"'q' || n % {QUEUES}, n / {QUEUES} % {PRIORITIES}"


def title(options: Namespace) -> str:
    """Say what is measured."""
    large = f"{options.large:,} future and as many finished jobs, {2 * DUE:,} due"
    return f"claims of {LIMIT}, {large}, {options.claims} times"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Fill a fresh database once, and claim from it many times."""
    table: LiteralString = "django_pgjobs_job" if contender is PRODUCT else "job"
    insert: LiteralString = f"insert into {table} (kind, payload, queue, priority, run_at) select 'noop', '{{\"i\": 1}}',"
    half = options.large // 2
    future = "now() + interval '1 day' + n * interval '1 second'"
    more = (
        f"{insert} 'default', n % 2 * 10, {future} from generate_series(1, {half}) n",
        f"{insert} {_LANE}, {future} from generate_series(1, {half}) n",
        f"{insert} {_LANE}, now() from generate_series(1, {DUE}) n",
    )
    found: dict[str, float] = {}
    with server.database(contender, DUE, options.large, *more) as database:
        for name, queues in ("1 queue", ["default"]), ("50 queues", _names()):
            request = {"queues": queues, "limit": LIMIT, "times": options.claims}
            answer = contender.ask(database, "claim_cost", **request)
            if answer["claimed"] != LIMIT:
                msg = f"{contender.name} must claim {LIMIT} jobs, got {answer['claimed']}."
                raise BenchmarkError(msg)
            lanes = 2 if len(queues) == 1 else QUEUES * PRIORITIES
            cuts = statistics.quantiles(answer["seconds"], n=100, method="inclusive")
            found[f"{name}, p99"] = cuts[98] * 1e6
            found[f"{name}, pages of allowed"] = answer["pages"] / (20 * LIMIT + 5 * lanes) * 100
    return found


def _names() -> list[str]:
    return [f"q{n}" for n in range(QUEUES)]
