"""`python -m benchmarks [NAME...]`: measure, print a table and the whole result as JSON."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import drain, enqueue, enqueue_many, idle, latency, machine
from benchmarks.comparison import Scenario, compare, table
from benchmarks.contenders import CONTENDERS
from benchmarks.server import running_server

SCENARIOS: dict[str, Scenario] = {
    "drain": drain,
    "enqueue": enqueue,
    "enqueue_many": enqueue_many,
    "latency": latency,
    "idle": idle,
}


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
    parser.add_argument("--jobs", type=_at_least(100), default=50_000, help="drain: queued jobs")
    parser.add_argument("--threads", type=_at_least(1), default=8, help="drain: of the worker")
    parser.add_argument("--seconds", type=float, default=3.0, help="enqueue: time of one loop")
    parser.add_argument("--bulk", type=_at_least(1), default=100_000, help="enqueue_many: jobs")
    parser.add_argument("--picks", type=_at_least(2), default=100, help="latency: jobs")
    parser.add_argument("--idle", type=float, default=20.0, help="idle: seconds to watch")
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
