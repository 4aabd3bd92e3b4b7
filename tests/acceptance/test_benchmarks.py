"""The benchmarks run and say what they found; how fast it was is no matter of tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import admin
from benchmarks.__main__ import SCENARIOS

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parents[2]


def benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": os.environ["PGJOBS_TEST_URL"]},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


SMALL = {
    "rounds": 1,
    "jobs": 500,
    "backlog": 1000,
    "held": 500,
    "edge": 0.5,
    "large": 2000,
    "claims": 3,
    "writers": 2,
    "seconds": 0.1,
    "bulk": 500,
    "picks": 3,
    "polls": 2,
    "noops": 500,
    "readers": 100,
    "idle": 1,
    "naps": 800,
    "messages": 600,
    "rows": 500,
}
FIGURES = {
    "drain": {"drain"},
    "two_processes": {"one", "two", "two of one"},
    "due_backlog": {"few", "many", "many of few"},
    "held_snapshot": {"first", "last", "last of first"},
    "claim_cost": {
        f"{queues}, {what}"
        for queues in ("1 queue", "50 queues")
        for what in ("p99", "pages of allowed")
    },
    "claim_modes": {"lease", "transaction", "transaction of lease"},
    "enqueue": {"1 thread", "4 threads", "1 thread, prepared", "4 threads, prepared"},
    "writers": {"silent", "waking", "waking of silent"},
    "enqueue_many": {"enqueue_many", "peak memory"},
    "tasks": {
        f"{act}, {what}"
        for act in ("enqueue", "drain")
        for what in ("jobs", "tasks", "tasks of jobs")
    },
    "latency": {"p50", "p99"},
    "polling": {"p50", "latest"},
    "idle": {"transactions", "CPU", "memory", "connections"},
    "memory": {"no-ops, growth", "readers, growth", "largest"},
    "poison": {"clean", "poisoned", "poisoned of clean", "deaths"},
    "pgmq": {"consume, 20 at a time", "consume, 200 at a time", "send_batch", "send"},
    "admin": set(admin.UNITS),
}
RUNS = 4
ALONE = {"admin", "claim_modes", "poison", "tasks"}  # nothing is compared with it
# On a busy machine a job may start before its commit returns, and an idle worker do nothing for a second.
SMALL_FIGURES = {"idle", "latency"}


def groups():
    """Return the scenarios in a few runs, each of which makes its tables once; the longest has its own."""
    *names, longest = FIGURES
    return [*(names[first::RUNS] for first in range(RUNS)), [longest]]


@pytest.mark.parametrize("scenarios", groups(), ids=" ".join)
def test_scenarios_print_a_table_and_json_with_ratios(scenarios):
    done = benchmark(*scenarios, *(f"--{name}={value}" for name, value in SMALL.items()))
    assert done.returncode == 0, done.stderr
    *table, blank, text = done.stdout.splitlines()
    assert table[0].split("|")[2].strip() == "ratio"
    assert len(table) == 2 + sum(len(FIGURES[scenario]) for scenario in scenarios)
    assert not blank
    result = json.loads(text)
    assert {"machine", "versions", "server", "options"} < set(result)
    assert list(result["scenarios"]) == scenarios
    for scenario in scenarios:
        figures = result["scenarios"][scenario]["figures"]
        assert set(figures) == FIGURES[scenario]
        for name, figure in figures.items():
            if scenario == "admin":
                assert figure["medians"]["django-pgjobs"] > 0, name
            elif scenario in SMALL_FIGURES:
                assert figure["ratio"] is None or figure["ratio"] >= 0, name
            elif scenario not in ALONE:
                assert "MB per" in figure["unit"] or figure["ratio"] > 0, name


def test_without_a_name_all_scenarios_are_meant():
    assert set(SCENARIOS) == set(FIGURES)


def test_an_unknown_scenario_is_a_usage_error_that_names_the_known():
    done = benchmark("drian")
    assert done.returncode == 2
    assert "drain" in done.stderr
