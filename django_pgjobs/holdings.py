"""The claims that a worker holds: they run, have ended, did not start, or were lost with a transaction.

Invariant: a claim and its slot on the board are let go only when its outcome or its release is written,
or cannot be any more. What is locked, or got no answer, waits for the next try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from django_pgjobs import claims, execution, outcomes
from django_pgjobs.attempts import Held
from django_pgjobs.charges import Losses
from django_pgjobs.claims import Claim, Token
from django_pgjobs.exceptions import PgJobsError
from django_pgjobs.leases import Lease
from django_pgjobs.outcomes import Done, NotDone, Outcome, Settled
from django_pgjobs.sessions import Execute

T = TypeVar("T", bound=Outcome | Settled)


class Holdings:
    """The claims of one worker. One thread uses it."""

    def __init__(self, lease: Lease, execute: Execute, on_decided: Callable[[Token], None]) -> None:
        """Begin with none; tell of each claim that was lost with its transaction and is not any more."""
        self.unsettled: list[Outcome] = []  # what has ended
        self._unstarted: list[Held] = []
        self._held: dict[int, Held] = {}  # by job
        self._losses = Losses(lease, self._held, on_decided)
        self._lease = lease
        self._execute = execute

    def __len__(self) -> int:
        return len(self._held)

    @property
    def waits(self) -> bool:
        """Whether an attempt has ended and that could not be written yet."""
        return bool(self.unsettled or self._losses)

    def hold(self, claimed: Iterable[Held]) -> None:
        """Hold what was claimed."""
        self._held |= {one.claim.id: one for one in claimed}

    def note_unstarted(self, unstarted: Iterable[Held]) -> None:
        """Take note of claims that did not start, to be released."""
        self._unstarted += unstarted

    def note_lost(self, held: Held, outcome: NotDone) -> None:
        """Hold a claim that was lost with its transaction, to be retaken and then settled."""
        self._losses.add(held, outcome)

    def retake(self) -> None:
        """Try to retake what was lost."""
        self.unsettled += self._losses.retake(self._execute)

    def settle(self, ended: Sequence[Outcome]) -> list[Outcome]:
        """Settle these of the unsettled; return those that are over."""
        if not ended:
            return []
        left = outcomes.settle(self._execute, self._lease.worker, ended)
        return self.let_go(ended, left.locked)

    def let_go_completed(self, done: Sequence[Done], missed: Sequence[Claim]) -> list[Done]:
        """Let go of what a claim has completed but for those that it missed, as far as these are over."""
        missing = [one for one in done if one.claim in missed] if missed else []
        left = outcomes.tell_apart(self._execute, self._lease.worker, missing)
        return self.let_go(done, left.locked)

    def let_go(self, ended: Sequence[T], locked: Sequence[Outcome] = ()) -> list[T]:
        """Let go of what is over and return it; what was locked is tried again."""
        kept = set(map(id, locked))
        over = {id(outcome): outcome for outcome in ended if id(outcome) not in kept}
        for outcome in over.values():
            self._drop(outcome.claim.id)
        self.unsettled = [outcome for outcome in self.unsettled if id(outcome) not in over]
        return list(over.values())

    def give_up(
        self,
        running: Iterable[Held],
        cut: Sequence[Held],
        error: Callable[[Held], PgJobsError],
        delay: float | None,
    ) -> list[Outcome]:
        """Settle running attempts as failed, and before that retake what was `cut` from its transaction."""
        for held in running:
            failed = execution.failed(held.claim, error(held), self._lease.name, delay=delay)
            if held in cut:
                self.note_lost(held, failed)
            else:
                self.unsettled.append(failed)
        self.unsettled += self._losses.retake_last(self._execute)
        return self.settle(self.unsettled)

    def release(self) -> list[int]:
        """Release what did not start; return the jobs that are given back."""
        if not self._unstarted:
            return []
        unstarted = [held.claim for held in self._unstarted]
        locked = claims.release(self._execute, self._lease.worker, unstarted)
        self._unstarted = [held for held in self._unstarted if held.claim in locked]
        released = [claim.id for claim in unstarted if claim not in locked]
        for job in released:
            self._drop(job)
        return released

    def release_orphans(self) -> int:
        """Release what this worker has claimed without an answer; return how many."""
        held = [held.claim for held in self._held.values()]
        return claims.release_orphans(self._execute, self._lease.worker, held)

    def _drop(self, job: int) -> None:
        held = self._held.pop(job, None)
        if held is not None:
            self._lease.board.give_back(held.slot)
