"""What must be true of the order of jobs without limits: none waits for long while later ones start."""

from __future__ import annotations

import datetime
from bisect import bisect
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from django_pgjobs.claims import SURVEY
from tests.chaos.history import History, Life

KINDS = (
    "chaos",
    "achaos",
)  # the two have room of their own, so one may start where the other cannot
# Seconds beyond the survey: full claims take a tenth of the time at most, and through a slow proxy each
# takes 0.3 s there and 0.3 s back; besides, what a stopped process had decided it does when it goes on.
LATE = 6.0

Place = tuple[int, datetime.datetime, int]  # priority downwards, run_at, id


class Wait(NamedTuple):
    """A job that was due, from one moment until the statement began that claimed it, and when it had."""

    key: str
    place: Place
    since: float
    until: float
    claimed: float


def nothing_is_overtaken_for_long(history: History) -> Iterator[str]:
    """A job that appears behind a scan waits for the next survey; nothing later is claimed after it."""
    for kind in KINDS:
        lives = {k: life for k, life in history.lives.items() if life.row["kind"] == kind}
        waits = sorted(
            (wait for key, life in lives.items() for wait in waits_of(key, life)),
            key=attrgetter("until"),
        )
        for n, wait in enumerate(waits):
            first = bisect(waits, wait.since + SURVEY + LATE, hi=n, key=attrgetter("until"))
            for other in waits[first:n]:
                # Of two claims that were made side by side, each passes over what the other one locks.
                if other.claimed < wait.until and wait.place < other.place:
                    late = other.until - wait.since
                    yield f"{wait.key} was due for {late:.3f} s when {other.key} overtook it"
                    break


def waits_of(key: str, life: Life) -> Iterator[Wait]:
    """Yield each time that a job was due and was claimed then."""
    since: float = 0.0
    place: Place | None = None
    for change, committed in zip(life.changes, life.commits, strict=True):
        if change.new == "pending" and change.run_at:
            place = (-life.row["priority"], change.run_at, change.job)
            since = max(committed, change.run_at.timestamp())
        elif change.new == "running" and change.old == "pending" and place:
            claimed = change.at.timestamp()
            yield Wait(key, place, since, change.began.timestamp(), claimed)
