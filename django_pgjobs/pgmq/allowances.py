"""How many messages may still be read, where `--max-jobs` says how many jobs and messages a process may take.

The worker alone knows how many jobs it has, and says again and again how many messages are allowed beside them;
the pumps of all consumers share these.

Invariant: what is allowed, is being read, is held or has ended is never more than the worker has said.
"""

from __future__ import annotations

import math
import threading


class Allowance:
    """The messages of one process."""

    def __init__(self, most: int | None) -> None:
        """Allow so many, None for as many as there are."""
        self._allowed: float = math.inf if most is None else most
        self._reading = 0
        self._taken = 0  # held, or ended
        self._denied = False
        self._lock = threading.Lock()

    def settle(self) -> tuple[int, int]:
        """Allow no more for now; return how many were read, and how many may be in a moment."""
        with self._lock:
            self._allowed = 0
            return self._taken, self._reading

    def allow(self, number: int) -> bool:
        """Allow so many more, and say whether somebody had to do without."""
        with self._lock:
            self._allowed = number
            denied, self._denied = self._denied and number > 0, self._denied and number <= 0
            return denied

    def take(self, wanted: int) -> int:
        """Return how many of those that are wanted may be read, until `note()`."""
        with self._lock:
            given = int(max(0, min(wanted, self._allowed)))
            self._allowed -= given
            self._reading += given
            self._denied = self._denied or given < wanted
            return given

    def note(self, given: int, found: int) -> None:
        """Take note of how many there were of those that were given."""
        with self._lock:
            self._reading -= given
            self._taken += found

    def give_back(self, number: int) -> None:
        """Take note that so many were let go without having begun."""
        with self._lock:
            self._taken -= number
