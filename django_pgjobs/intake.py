"""What one worker claims: free jobs, and those with limits, of any kind or of certain ones.

For what has limits there is a claimer of its own for each sort of kinds that is asked for: where there is
room for one sort alone, what is found of it says nothing of the others.

Invariant: it is `exhausted` only if the last look of each sort found all that it could claim.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterable, Sequence

from django_pgjobs.claims import Claim, Claimer, Served
from django_pgjobs.limited_claims import LimitedClaimer
from django_pgjobs.outcomes import Failed, Outcome, Settled, Snoozed
from django_pgjobs.sessions import Execute, Executor
from django_pgjobs.worker_options import WorkerOptions

_MOST_EXPECTED = 10_000  # times of further attempts; those beyond wait for the poll


class Intake:
    """Claims for one worker, by the options that it was given."""

    def __init__(self, options: WorkerOptions, worker: int) -> None:
        """Compile the claims, on Django's own connection."""
        served = options.by_lease or Served(queues=())
        self._claimer = Claimer(options.database, worker, *served)
        self._limited = LimitedClaimer(worker, served)
        self._limited_of_kinds: dict[bool, LimitedClaimer] = {}
        self._limited_first = False
        self._expected: list[float] = []  # a heap, by the monotonic clock
        self._worker, self._served, self._options = worker, served, options
        self.doubt()

    @property
    def exhausted(self) -> bool:
        """Whether the last claims found all that was due."""
        return self._claimer.exhausted and self._limited.exhausted

    @property
    def seconds(self) -> float:
        """How long until it has to look again, if there is room."""
        free = math.inf if self._claimer.exhausted else self._claimer.seconds_to_full
        seconds = min(free, self._limited.seconds)
        return min(seconds, self._expected[0] - time.monotonic()) if self._expected else seconds

    def doubt(self) -> None:
        """Take note that something may be due since the last claim."""
        self._claimer.exhausted = self._options.by_lease is None  # no queue: nothing to look for

    def expect(self, settled: Iterable[Outcome | Settled]) -> None:
        """Take note of when the jobs are due again that were settled just now: nobody else tells."""
        now = time.monotonic()
        for outcome in settled:
            delay = outcome.delay if isinstance(outcome, Failed | Snoozed) else None
            if delay is not None and len(self._expected) < _MOST_EXPECTED:
                heapq.heappush(self._expected, now + delay)

    def let_go(self, jobs: Iterable[int]) -> None:
        """Take note that jobs have ended or were given back: their slots are free for jobs of every sort."""
        every = self._all_limited
        if [job for job in jobs if any(limited.let_go(job) for limited in every)]:
            for limited in every:
                limited.look_now()

    def limited_goes_first(self) -> bool:
        """Say whether to claim jobs with limits before others: if it is time for both, they take turns."""
        due = not all(limited.seconds for limited in self._all_limited)
        if due:
            self._limited_first = not self._limited_first
        return due and self._limited_first

    def settle_and_claim(
        self, execute: Execute, done: Sequence[Claim], limit: int
    ) -> tuple[list[Claim], list[Claim]]:
        """Complete `done` and claim free jobs; return them, and those of `done` not completed."""
        now = time.monotonic()
        while self._expected and self._expected[0] <= now:
            heapq.heappop(self._expected)
        claimed, missed = self._claimer.settle_and_claim(execute, done, limit)
        self._note_survey()
        return claimed, missed

    def claim_kinds(
        self, execute: Execute, limit: int, kinds: Sequence[str], *, among: bool
    ) -> list[Claim]:
        """Claim free jobs whose kind is `among` these, or is not."""
        self._limited_among(kinds, among=among)
        claimed = self._claimer.claim_kinds(execute, limit, kinds, among=among)
        self._note_survey()
        return claimed

    def claim_limited(self, session: Executor, limit: int) -> list[Claim]:
        """Claim what has limits, if it is time. While a claim waits for its turn, it holds a slot."""
        return [] if self._limited.seconds else self._limited.claim(session, limit)

    def claim_limited_kinds(
        self, session: Executor, limit: int, kinds: Sequence[str], *, among: bool
    ) -> list[Claim]:
        """Claim, if it is time, what has limits and whose kind is `among` these, or is not."""
        limited = self._limited_among(kinds, among=among)
        return [] if limited.seconds else limited.claim(session, limit)

    def seconds_to(self, *, among: bool) -> float:
        """How long until it has to look again for such kinds alone, if there is room for these."""
        limited = self._limited_of_kinds.get(among)
        return limited.seconds if limited else math.inf

    def _limited_among(self, kinds: Sequence[str], *, among: bool) -> LimitedClaimer:
        limited = self._limited_of_kinds.get(among)
        if limited is None:
            limited = LimitedClaimer(self._worker, self._served, kinds=kinds, among=among)
            self._limited_of_kinds[among] = limited
            if not self._limited.seconds:
                limited.look_now()
        return limited

    @property
    def _all_limited(self) -> list[LimitedClaimer]:
        return [self._limited, *self._limited_of_kinds.values()]

    def _note_survey(self) -> None:
        if self._claimer.limited_due is not None:
            for limited in self._all_limited:
                limited.note_survey(self._claimer.limited_due, at_once=self._options.drain)
