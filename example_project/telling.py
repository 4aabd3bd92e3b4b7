"""How the demo tells its story: scenes, findings, and the table at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class Shown(Protocol):
    """What the table says of a job."""

    @property
    def kind(self) -> str: ...  # noqa: D102 -- as the column
    @property
    def status(self) -> str: ...  # noqa: D102 -- likewise
    @property
    def attempts(self) -> int: ...  # noqa: D102 -- likewise


class Finding(NamedTuple):
    """What a scene has shown: a line of the table, and the facts that it stands on."""

    shows: str
    job: Shown | None
    facts: Mapping[str, bool]


def scene(title: str, *lines: str) -> None:
    """Open a scene."""
    print(f"\n{title}")
    for line in lines:
        say(line)


def say(line: str) -> None:
    """Tell one line of the story."""
    print(f"   {line}", flush=True)


def report(findings: list[Finding], seconds: float) -> bool:
    """Print the table, and whatever was not as claimed; return whether all is true."""
    print(f"\n{'kind':<20}{'status':<9}{'attempts':<10}{'what it shows':<45}true?")
    for shows, job, facts in findings:
        kind, status, attempts = (job.kind, job.status, job.attempts) if job else ("-", "-", "-")
        verdict = "yes" if all(facts.values()) else "NO"
        print(f"{kind:<20}{status:<9}{attempts:<10}{shows:<45}{verdict}")
    false = [fact for finding in findings for fact, holds in finding.facts.items() if not holds]
    for fact in false:
        print(f"NOT TRUE: {fact}.")
    total = sum(len(finding.facts) for finding in findings)
    print(f"\n{total - len(false)} of {total} facts are true. The demo took {seconds:.0f} s.")
    return not false
