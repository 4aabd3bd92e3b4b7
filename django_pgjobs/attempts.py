"""What the two places that run handlers, the threads and the event loop, have in common.

Invariant: a claim that came in leaves by the inbox or by `take_back()`, exactly once; the board
knows that it started before its handler does anything.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from django_pgjobs import registry
from django_pgjobs.claims import Claim
from django_pgjobs.deadlines import Deadline, Watch
from django_pgjobs.exceptions import JobTimeout
from django_pgjobs.job_types import JobType
from django_pgjobs.leases import Lease
from django_pgjobs.lines import Line
from django_pgjobs.mailbox import Mailbox
from django_pgjobs.outcomes import NotDone, Outcome, Settled

MOST_AHEAD = 1_000  # claims waiting for a turn: a statement then settles and claims half of them
# Work that may wait for its turn, in seconds: about the time of some claims. Short jobs are claimed
# ahead, long ones are not, so that none waits here while another worker is idle.
AHEAD = 0.05
_NEVER = Deadline(None)


class Held(NamedTuple):
    """A claim that this worker holds, its slot on the board, and its handler if there is one."""

    claim: Claim
    slot: int
    job_type: JobType[..., Any] | None
    line: Line | None = None  # to a handler that can be asked to stop, or asks itself

    @classmethod
    def of(cls, claim: Claim, slot: int, database: str) -> Held:
        """Find the handler; `database` is the alias of the jobs."""
        job_type = registry.find(claim.kind)
        if job_type is None or not job_type.listens:
            return cls(claim, slot, job_type)
        return cls(claim, slot, job_type, Line(database, silent=job_type.atomic))

    def timed_out(self) -> JobTimeout:
        """Return the error of an attempt that did not stop at its timeout."""
        return JobTimeout.after(self.job_type.timeout if self.job_type else None)


class News(NamedTuple):
    """What became of a claim: its outcome, or None where it was not started."""

    held: Held
    outcome: Outcome | Settled | None
    seconds: float


class Turn(NamedTuple):
    """What became of a job that was claimed in a transaction of its own; of none, to wake the pump.

    `not_done` is its outcome, unless it is done. It is `settled` unless its transaction was lost.
    """

    held: Held | None
    not_done: NotDone | None
    settled: bool
    seconds: float = 0.0


# None wakes the pump, to look for jobs; an error ends the worker, for a claim is in nobody's hands.
Inbox = Mailbox[News | Turn | BaseException | None]


class Runner(ABC):
    """Runs handlers, so many at a time. All but the running itself is the pump's thread's."""

    def __init__(self, lease: Lease, capacity: int, inbox: Inbox, watch: Watch) -> None:
        """Prepare to run so many jobs at a time."""
        self.capacity = capacity
        self.starts = 0  # only ever compared with itself: a lost increment does no harm
        self.closed = False  # starts nothing more
        self.pace: float | None = None  # seconds that a handler takes, a moving average
        self._count = 0  # claims that came in and have not left
        self._stalled = (0, time.monotonic())  # starts so far, and since when there were no more
        self._lease = lease
        self._inbox = inbox
        self._watch = watch

    @property
    def room(self) -> int:
        """How many more claims to take: one for each turn, and short jobs ahead, by their pace."""
        depth = self.capacity
        if self.pace is not None:
            depth += int(min(AHEAD * self.capacity / max(self.pace, 1e-6), MOST_AHEAD))
        return max(0, depth - self._count)

    def submit(self, held: Sequence[Held]) -> None:
        """Take claims in, in this order."""
        self._count += len(held)
        self._put(held)

    def take_back(self) -> list[Held]:
        """Take the claims back that have not started."""
        unstarted = self._take()
        self._count -= len(unstarted)
        return unstarted

    def note(self, news: News) -> None:
        """Take note of what the pump found in its inbox."""
        self._count -= 1
        if news.outcome is not None:
            pace = news.seconds if self.pace is None else self.pace
            self.pace = 0.9 * pace + 0.1 * news.seconds

    def take_back_stalled(self, patience: float) -> list[Held]:
        """Take back what waits, where nothing has started for so long."""
        now = time.monotonic()
        if self.starts != self._stalled[0] or self.idle:
            self._stalled = (self.starts, now)
        if now - self._stalled[1] <= patience:
            return []
        self.pace = max(self.pace or 0.0, patience)  # so that nothing is claimed ahead for a while
        return self.take_back()

    def ask(self, held: Held) -> None:
        """Ask what runs here to stop, if it takes a context: it is its handler's to look there."""
        if held.line is not None:
            held.line.asked = True

    @property
    @abstractmethod
    def idle(self) -> bool:
        """Whether no claim waits for its turn."""

    @property
    @abstractmethod
    def running(self) -> list[Held]:
        """What is running now."""

    @property
    @abstractmethod
    def stuck(self) -> list[Held]:
        """What is running now and cannot be stopped, though its time is over."""

    @property
    @abstractmethod
    def threads(self) -> list[threading.Thread]:
        """The threads that end after a `close()`, but for those of what is stuck."""

    @abstractmethod
    def close(self) -> None:
        """Start nothing more, and end after what is running."""

    @abstractmethod
    def _put(self, held: Sequence[Held]) -> None: ...

    @abstractmethod
    def _take(self) -> list[Held]: ...

    def _may_start(self) -> bool:
        return self._lease.safe and not self.closed

    def _begin(self, held: Held) -> Deadline:
        """Note the start, and when the attempt must end."""
        seconds = held.job_type.timeout if held.job_type else None
        deadline = _NEVER
        if seconds is not None or self._watch.ends < math.inf:
            deadline = Deadline(seconds, self._watch, partial(self._lease.board.end, held.slot))
        self._lease.board.start(held.slot, held.claim.id, deadline.at)
        self.starts += 1
        return deadline

    def _mark_stuck(self, held: Held) -> None:
        self._lease.board.time_out(held.slot)
        self._inbox.put(None)

    @contextmanager
    def _or_end_the_worker(self) -> Iterator[None]:
        """Let what goes wrong here end the worker: a claim that nobody passes on is held for ever."""
        try:
            yield
        except BaseException as error:  # noqa: BLE001 -- the pump raises it
            self._inbox.put(error)

    def _end(self, held: Held, outcome: Outcome | Settled | None, began: float) -> None:
        if held.job_type and held.job_type.timeout:
            self._lease.board.end(held.slot)
        self._inbox.put(News(held, outcome, time.perf_counter() - began))
