"""Measure both contenders in alternating rounds; medians and ratios of what was found.

A ratio compares the two measurements of one round, which followed each other: on a machine that
gets faster and slower, the median of those says more than the quotient of two medians.
"""

from __future__ import annotations

import statistics
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from benchmarks import machine
from benchmarks.contenders import CONTENDERS, PRODUCT, RAW, Contender
from benchmarks.server import Server


class Scenario(Protocol):
    """What the module of a scenario has."""

    @property
    def UNITS(self) -> Mapping[str, str]:  # noqa: N802 -- a constant of the module
        """The figures and their units."""

    def title(self, options: Namespace) -> str:
        """Say what is measured."""

    def measure(
        self, contender: Contender, server: Server, options: Namespace
    ) -> Mapping[str, float]:
        """Measure once, in a fresh database; return a value for each of UNITS."""


def compare(scenario: Scenario, server: Server, options: Namespace) -> dict[str, Any]:
    """Run the rounds, each contender first in every other one; what stands alone has one round."""
    contenders = getattr(scenario, "CONTENDERS", CONTENDERS)
    values: dict[str, dict[str, list[float]]] = {
        figure: {contender.name: [] for contender in contenders} for figure in scenario.UNITS
    }
    loads = [machine.load()]
    for number in range(options.rounds if len(contenders) > 1 else 1):
        for contender in contenders[:: -1 if number % 2 else 1]:
            found = scenario.measure(contender, server, options)
            shown = ", ".join(f"{name} {value:,.0f}" for name, value in found.items())
            print(f"  round {number + 1}: {contender.name}: {shown}", file=sys.stderr, flush=True)
            for figure, value in found.items():
                values[figure][contender.name].append(value)
        loads.append(machine.load())
    return {
        "title": scenario.title(options),
        "figures": {name: _figure(scenario.UNITS[name], values[name]) for name in values},
        "load": loads,
    }


def _figure(unit: str, values: Mapping[str, list[float]]) -> dict[str, Any]:
    # What has no size, as memory that shrinks, has no ratio; nor has what stands alone.
    pairs = zip(values[PRODUCT.name], values.get(RAW.name, ()), strict=False)
    ratios = [ours / raw for ours, raw in pairs if raw > 0]
    return {
        "unit": unit,
        "ratio": round(statistics.median(ratios), 3) if ratios else None,
        "ratios": [round(ratio, 3) for ratio in ratios],
        "medians": {name: round(statistics.median(each), 1) for name, each in values.items()},
        "values": {name: [round(value, 1) for value in each] for name, each in values.items()},
    }


def _shown_ratios(ratios: Sequence[float]) -> tuple[str, str]:
    if not ratios:
        return "", ""
    return f"{statistics.median(ratios):.0%}", f"{min(ratios):.0%} to {max(ratios):.0%}"


def _shown(median: float | None) -> str:
    return "" if median is None else f"{median:,.0f}"


def table(results: Mapping[str, Any]) -> str:
    """Return the ratios, then the medians, as a Markdown table."""
    names = [contender.name for contender in CONTENDERS]
    rows = [["", "ratio", "(of the rounds)", *names, ""]]
    for scenario, result in results.items():
        for name, figure in result["figures"].items():
            rows.append(
                [
                    name if name == scenario else f"{scenario}, {name}",
                    *_shown_ratios(figure["ratios"]),
                    *(_shown(figure["medians"].get(contender)) for contender in names),
                    figure["unit"],
                ]
            )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    )
