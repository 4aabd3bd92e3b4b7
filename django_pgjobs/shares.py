"""How `max_jobs` is shared between the jobs of a worker and what runs beside them, which has threads of its own.

Invariant: jobs that are held or settled, those that may be claimed by the word of `left()`, and what the companion
has begun or may begin are never more than the limit.
"""

from __future__ import annotations

from django_pgjobs.companions import NOBODY, Companion


class Share:
    """The share of the companion. One thread asks and tells."""

    def __init__(self, limit: int, companion: Companion) -> None:
        """Begin without any."""
        self._limit = limit
        self._companion = companion
        self._begun = 0
        self._open = 0  # what it is about to begin, or may: some of that may come to nothing

    @property
    def is_wanted(self) -> bool:
        """Whether there is anybody beside the jobs."""
        return self._companion is not NOBODY

    def set(self, jobs: int, kept: float) -> None:
        """Let it begin what is left beside these jobs and those that are kept, until the next call."""
        self._begun, about = self._companion.settle()
        self._open = about
        allowed = int(max(0, self.left(jobs) - kept))
        self._open += allowed
        self._companion.allow(allowed)

    def left(self, jobs: int) -> int:
        """Return how many more jobs may be claimed beside these."""
        return self._limit - jobs - self._begun - self._open

    def is_used_up(self, jobs: int) -> bool:
        """Whether nothing can be begun any more, whatever becomes of what is open."""
        return self.left(jobs) + self._open <= 0
