"""Count the attempts whose transaction was lost, and the claim with it.

A job that runs in a transaction of its own is pending again as soon as that is rolled back, as if it had
never been started. Its worker, or the supervisor of that, takes exactly this claim again, by the
token that it would have had, and from then on it is like any other.

Invariant: a claim is retaken at most once, and never a later one than the one that was lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from django_pgjobs import claims
from django_pgjobs.attempts import Held
from django_pgjobs.claims import Token
from django_pgjobs.leases import Lease
from django_pgjobs.outcomes import Failed
from django_pgjobs.sessions import Execute

logger = logging.getLogger(__name__)

PATIENCE = 5.0  # seconds for the server to notice that the other end of a transaction is gone
AGAIN = 0.01  # seconds between two tries
_LAST = 1.0  # seconds of tries before a worker ends; what is left then is its supervisor's to count

T = TypeVar("T")


class Charges(Generic[T]):
    """Lost claims of one worker, each with what its owner wants back when that is decided."""

    def __init__(self, worker: int) -> None:
        """Begin with none."""
        self._worker = worker
        self._waiting: dict[Token, T] = {}
        self._until: dict[Token, float] = {}  # counted from the first answer of the server

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, token: Token) -> bool:
        return token in self._waiting

    def add(self, token: Token, wanted: T) -> None:
        """Add a claim that was lost."""
        self._waiting[token] = wanted

    def retake(self, execute: Execute) -> tuple[list[T], list[T]]:
        """Try to retake each; return what was wanted for those that are, and for those given up."""
        if not self._waiting:
            return [], []
        retaken, locked = claims.retake(execute, self._worker, list(self._waiting))
        now = time.monotonic()
        for token in locked:
            self._until.setdefault(token, now + PATIENCE)
        late = [token for token in locked if self._until[token] < now]
        gone = [token for token in self._waiting if token not in retaken and token not in locked]
        for job, _ in late:
            logger.warning(
                "An attempt of job %s cannot be counted: its row stays locked.",
                job,
                extra={"job_id": job},
            )
        for job, _ in gone:
            logger.warning(
                "The transaction of job %s was lost, and the job has gone on since. Unless its own "
                "commit got through, an attempt was not counted.",
                job,
                extra={"job_id": job},
            )
        return self._take(retaken), self._take([*late, *gone])

    def _take(self, tokens: list[Token]) -> list[T]:
        for token in tokens:
            self._until.pop(token, None)
        return [self._waiting.pop(token) for token in tokens]


class Losses:
    """The failures of a worker whose claims were lost, held like its other claims meanwhile."""

    def __init__(
        self, lease: Lease, held: dict[int, Held], on_decided: Callable[[Token], None]
    ) -> None:
        """Hold them in `held`, the claims of the worker by job; tell of each that is not lost any more."""
        self._board = lease.board
        self._held = held
        self._on_decided = on_decided
        self._charges: Charges[Failed] = Charges(lease.worker)
        self._known: set[Token] = set()  # a worker that gives a job up may hear of its end later

    def __len__(self) -> int:
        return len(self._charges)

    def add(self, held: Held, failed: Failed) -> None:
        """Hold this claim, on the board too: should the worker die, its supervisor counts it."""
        claim = held.claim
        token = claim.token
        if token in self._known:
            if token not in self._charges:  # decided, before the thread said that it is lost
                self._on_decided(token)
            return
        self._known.add(token)
        slot = self._board.take()
        self._board.begin_transaction(slot, claim.claims)
        self._board.start(slot, claim.id)
        self._held[claim.id] = Held(claim, slot, held.job_type)
        self._charges.add(token, failed)

    def retake(self, execute: Execute) -> list[Failed]:
        """Return those that are claims again, to be settled like all others; drop what cannot be."""
        retaken, given_up = self._charges.retake(execute)
        for failed in retaken:
            self._board.end_transaction(self._held[failed.claim.id].slot)
        for failed in given_up:
            # Nothing of it was committed, so the next claim of this job has the same token.
            self._known.discard(failed.claim.token)
            slot = self._held.pop(failed.claim.id).slot
            self._board.end_transaction(slot)
            self._board.give_back(slot)
        for failed in (*retaken, *given_up):
            self._on_decided(failed.claim.token)
        return retaken

    def retake_last(self, execute: Execute) -> list[Failed]:
        """Do the same again and again, but not for long: the worker ends."""
        until = time.monotonic() + _LAST
        retaken = self.retake(execute)
        while self and time.monotonic() < until:
            time.sleep(AGAIN)  # nothing else is left to do
            retaken += self.retake(execute)
        return retaken
