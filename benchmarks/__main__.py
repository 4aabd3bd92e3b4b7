"""`python -m benchmarks [NAME...]`: measure, print a table and the whole result as JSON."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import (
    admin,
    claim_cost,
    claim_modes,
    drain,
    due_backlog,
    enqueue,
    enqueue_many,
    held_snapshot,
    idle,
    latency,
    machine,
    memory,
    pgmq,
    poison,
    polling,
    tasks,
    two_processes,
    writers,
)
from benchmarks.comparison import Scenario, compare, table
from benchmarks.contenders import CONTENDERS
from benchmarks.server import running_server

SCENARIOS: dict[str, Scenario] = {
    "drain": drain,
    "two_processes": two_processes,
    "due_backlog": due_backlog,
    "held_snapshot": held_snapshot,
    "claim_cost": claim_cost,
    "claim_modes": claim_modes,
    "enqueue": enqueue,
    "writers": writers,
    "enqueue_many": enqueue_many,
    "tasks": tasks,
    "latency": latency,
    "polling": polling,
    "idle": idle,
    "memory": memory,
    "poison": poison,
    "pgmq": pgmq,
    "admin": admin,
}

COUNTS = (
    (
        "jobs",
        100,
        50_000,
        "drain, two_processes, due_backlog, tasks: queued jobs; a tenth of them, claim_modes",
    ),
    ("threads", 1, 8, "of the worker that drains"),
    ("backlog", 100, 1_000_000, "due_backlog: due jobs beside; held_snapshot: finished ones"),
    ("held", 100, 300_000, "held_snapshot: queued jobs"),
    ("large", 100, 2_000_000, "claim_cost: future jobs, and finished ones"),
    ("claims", 2, 200, "claim_cost: how many"),
    ("writers", 1, 32, "writers: processes"),
    ("bulk", 1, 100_000, "enqueue_many: jobs"),
    ("picks", 2, 100, "latency: jobs"),
    ("polls", 2, 30, "polling: jobs"),
    ("noops", 100, 200_000, "memory: jobs that do nothing"),
    ("readers", 100, 20_000, "memory: jobs that read 1 MB each"),
    ("messages", 400, 50_000, "pgmq: messages to consume, and to send in batches"),
    ("naps", 100, 40_000, "poison: jobs that take 10 ms"),
    ("rows", 500, 10_000_000, "admin: finished jobs in the table"),
)


def main() -> None:
    """Measure what was asked for."""
    options = _options()
    if (load := machine.load()) > machine.cores() / 2:
        print(f"The machine is busy (load {load}): read ratios, no rates.", file=sys.stderr)
    results: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **machine.facts(),
        "options": {name: value for name, value in vars(options).items() if name != "out"},
        "scenarios": {},
    }
    with running_server(CONTENDERS) as server:
        results["server"] = server.facts()
        for name in options.scenarios:
            print(f"{name}: {SCENARIOS[name].title(options)}", file=sys.stderr, flush=True)
            results["scenarios"][name] = compare(SCENARIOS[name], server, options)
    print(table(results["scenarios"]), end="\n\n")
    print(json.dumps(results), flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure django-pgjobs beside a hand-written psycopg queue, on one server.",
        epilog="On stdout: a table of ratios and medians, then one line of JSON with everything.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("scenarios", nargs="*", metavar="NAME", help=", ".join(SCENARIOS))
    parser.add_argument("--rounds", type=_at_least(1), default=5, help="of both, alternating")
    for name, least, default, text in COUNTS:
        parser.add_argument(f"--{name}", type=_at_least(least), default=default, help=text)
    parser.add_argument("--seconds", type=float, default=3.0, help="enqueue, writers: of one loop")
    parser.add_argument("--idle", type=float, default=20.0, help="idle: seconds to watch")
    parser.add_argument("--edge", type=float, default=2.0, help="held_snapshot: seconds compared")
    parser.add_argument("--out", type=Path, help="also write the JSON to this file")
    options = parser.parse_args()
    options.scenarios = options.scenarios or list(SCENARIOS)
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"NAME must be one of {', '.join(SCENARIOS)}, got {', '.join(unknown)}.")
    return options


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value

    return number


if __name__ == "__main__":
    main()
