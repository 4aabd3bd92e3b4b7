"""The line between a worker and an attempt that it runs: a request to stop comes in, progress goes out.

Invariant: a line is some attributes in memory, so a handler that asks or tells makes no statement and waits
for nobody. `relay` carries both ways for all jobs of a worker together.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

QUIET = 1.0  # seconds from one write of a job's progress to the next, at least


class Progress(NamedTuple):
    """How far an attempt is: a fraction from 0 to 1, and what it is at."""

    fraction: float
    text: str


class Line:
    """What passes between one attempt and its worker. Each attribute has one writer."""

    def __init__(self, alias: str | None = None, *, silent: bool = False) -> None:
        """Begin with nothing said; `alias` is the database of the jobs. A silent line carries no progress."""
        self.alias = alias
        self.asked = False  # to stop
        self.said: Progress | None = None  # last
        self.job: Any = None  # the job itself, where it has no row
        self._silent = silent
        self._written: Progress | None = None
        self._quiet_until = -math.inf

    def unwritten(self, now: float = math.inf) -> Progress | None:
        """Return what was said last, unless it is written or it is too early for that."""
        said = self.said
        if said is self._written or self._silent or now < self._quiet_until:
            return None
        return said

    def note_written(self, said: Progress, now: float) -> None:
        """Take note that this is written."""
        self._written, self._quiet_until = said, now + QUIET
