"""The benchmarks run and say what they found; how fast it was is no matter of tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": os.environ["PGJOBS_TEST_URL"]},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize(
    ("options", "figures"),
    [
        (["drain", "--jobs", "500"], {"drain"}),
        (["two_processes", "--jobs", "500"], {"one", "two", "two of one"}),
        (
            ["due_backlog", "--jobs", "500", "--backlog", "1000"],
            {"few", "many", "many of few"},
        ),
        (
            ["held_snapshot", "--held", "500", "--backlog", "1000", "--edge", "1"],
            {"first", "last", "last of first"},
        ),
        (
            ["claim_cost", "--large", "2000", "--claims", "3"],
            {
                f"{n}, {what}"
                for n in ("1 queue", "50 queues")
                for what in ("p99", "pages of allowed")
            },
        ),
        (
            ["writers", "--writers", "2", "--seconds", "0.1"],
            {"silent", "waking", "waking of silent"},
        ),
        (["polling", "--polls", "2"], {"p50", "latest"}),
        (
            ["memory", "--noops", "500", "--readers", "100"],
            {"no-ops, growth", "readers, growth", "largest"},
        ),
        (["enqueue", "--seconds", "0.1"], {"1 thread", "4 threads"}),
        (["enqueue_many", "--bulk", "500"], {"enqueue_many", "peak memory"}),
        (["latency", "--picks", "5"], {"p50", "p99"}),
        (["idle", "--idle", "2"], {"transactions", "CPU", "memory", "connections"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_scenario_prints_a_table_and_json_with_ratios(options, figures):
    done = benchmark(*options, "--rounds", "1")
    assert done.returncode == 0, done.stderr
    *table, blank, text = done.stdout.splitlines()
    assert table[0].split("|")[2].strip() == "ratio"
    assert len(table) == 2 + len(figures)
    assert not blank
    result = json.loads(text)
    found = result["scenarios"][options[0]]["figures"]
    assert set(found) == figures
    assert all(figure["ratio"] > 0 for figure in found.values() if "MB per" not in figure["unit"])
    assert {"machine", "versions", "server", "options"} < set(result)


def test_an_unknown_scenario_is_a_usage_error_that_names_the_known():
    done = benchmark("drian")
    assert done.returncode == 2
    assert "drain" in done.stderr
