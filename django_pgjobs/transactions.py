"""The threads of a worker that claim for themselves: claim, run and settle, in one transaction.

The row stays locked while the job runs and reads `pending` to everybody else. So the end of the
process or of its connection gives the job back at once, and no lease is needed; the price is a
connection, and a snapshot that is held, for each running job.

Invariant: what a job did to the jobs database, its claim and its settle are committed together, or
else the pump is told that the attempt is still to be counted.
"""

from __future__ import annotations

import contextvars
import logging
import math
import threading
import time
from collections.abc import Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

from django.db import connections, transaction
from psycopg import errors

from django_pgjobs import atomic, execution, leftovers, outcomes, sessions
from django_pgjobs.attempts import Held, Inbox, Turn
from django_pgjobs.claims import Claimer, Served, Token
from django_pgjobs.deadlines import Deadline, Watch
from django_pgjobs.leases import Lease
from django_pgjobs.outcomes import NotDone, Settled
from django_pgjobs.sessions import DATABASE_ERRORS, execute_on_django
from django_pgjobs.threads import Threads
from django_pgjobs.worker_options import WorkerOptions

logger = logging.getLogger(__name__)

SLOW = 10.0  # seconds that a transaction may be open before its kind is warned of
_AGAIN = (errors.SerializationFailure, errors.DeadlockDetected)


class Transactions(Threads):
    """Threads that take jobs from the queues themselves, when the pump or one of them wakes them."""

    def __init__(
        self, lease: Lease, options: WorkerOptions, served: Served, inbox: Inbox, watch: Watch
    ) -> None:
        """Start the threads; they look for jobs once they are woken."""
        self.allowed = math.inf  # jobs that may still be begun or are running
        self.awaited = False  # whether the pump waits for the last of them to end
        self.next_look = 0.0  # when the pump wakes one of them
        self.jobs = 0  # those of which the pump has not heard yet
        self.busy = 0  # the same, and threads that look for one
        self._served = served
        # Claims that are being committed, or are lost and not counted yet: none of these threads may
        # make one of them again.
        self._at_stake: set[Token] = set()
        self._nothing_due = False
        self._ended = 0  # jobs: what one of them enqueued was not seen by those who looked before
        self._lock = threading.Lock()  # over the counts above
        self._turns: SimpleQueue[str] = SimpleQueue()
        self._slots: SimpleQueue[int] = SimpleQueue()
        self._sessions: dict[int, Any] = {}  # by thread: the connection that its job runs on
        self._complained = False
        self._warned_of_keys = False
        self._slow: set[str] = set()  # kinds that were warned of
        for _ in range(options.threads):
            self._slots.put(lease.board.take())
        super().__init__(lease, options.threads, inbox, watch, options.database)

    # --------------------------------------------------------------------------- the pump's side

    def look(self, poll: float, *, at_once: bool) -> None:
        """Wake one thread if the last time is a poll ago; or `at_once` if nobody is at work."""
        now = time.monotonic()
        if now >= self.next_look or (at_once and not self.busy):
            self.next_look = now + poll
            self.wake()

    def resume(self, token: Token) -> None:
        """Look for jobs again, since this lost claim needs no protection any more."""
        self._at_stake.discard(token)
        self.next_look = 0.0

    def wake(self) -> None:
        """Have one idle thread look for jobs; the one that finds one wakes the next."""
        if self._turns.empty():
            self._turns.put("look")

    def hold_back(self) -> None:
        """Begin nothing more, and tell the pump when the last has ended."""
        self.awaited = self.closed = True

    def hear(self) -> None:
        """Take note that the pump knows of a job that has ended."""
        with self._lock:
            self.jobs -= 1
            self.busy -= 1
            self.allowed -= 1

    def halve(self, *, up: bool) -> float:
        """Give up half of the jobs that may still be begun, rounded; return what is left of `allowed`."""
        with self._lock:
            self.allowed -= max(0, (self.allowed - self.busy + up) // 2)
            return self.allowed

    def doubt(self) -> None:
        """Forget that nothing was due: something may have been enqueued since."""
        with self._lock:
            self._ended += 1
            self._nothing_due = False

    @property
    def drained(self) -> bool:
        """Whether nothing runs, and the last look found that nothing is due."""
        return self._nothing_due and not self.busy

    def cut(self, chosen: Sequence[Held]) -> list[Held]:
        """Have the server roll back those of the chosen that run here, and return them."""
        running = [(t, held) for t, (held, _) in list(self._running.items()) if held in chosen]
        for thread, _ in running:
            if (connection := self._sessions.get(thread)) is not None:
                sessions.break_off(connection)
        return [held for _, held in running]

    def close(self) -> None:
        """Begin nothing more, and let each thread end after what it runs."""
        self.closed = True
        for _ in self._threads:
            self._turns.put("")

    # ------------------------------------------------------------------------- the threads' side

    def _work(self) -> None:
        slot, claimer = self._slots.get(), None
        leftovers.guard_thread()
        try:
            while self._turns.get():
                found = True
                while found and self._enter():
                    claimer, found = self._take_turn(claimer, slot)
        finally:
            connections.close_all()

    def _enter(self) -> bool:
        with self._lock:
            if not self._may_start() or self.busy >= self.allowed:
                return False
            self.busy += 1
            return True

    def _take_turn(self, claimer: Claimer | None, slot: int) -> tuple[Claimer | None, bool]:
        """Look for a job and run it; say whether there was one, or may be one."""
        began, seen = time.perf_counter(), self._ended
        turn, again, exhausted = None, False, False
        try:
            leftovers.check_before()
            claimer = claimer or Claimer(self._database, self._lease.worker, *self._served)
            turn = contextvars.Context().run(self._transact, claimer, slot)
            exhausted, self._complained = claimer.exhausted, False
            self._warn_of_keys(claimer.limited_due)
            leftovers.remove()
        except DATABASE_ERRORS as error:
            again = isinstance(error.__cause__, _AGAIN)
            if not again and not self._complained:
                self._complained = True
                logger.warning("No job can be claimed, trying again: %s", sessions.reason(error))
        except Exception:
            logger.exception("A thread that claims has failed, and goes on.")
        self._forget_thread()
        if turn is None:
            with self._lock:
                self.busy -= 1
                self._nothing_due = exhausted and seen == self._ended
            if self.awaited:
                self._inbox.put(Turn(None, None, settled=True))
            return claimer, again
        self.doubt()
        if turn.settled:
            self._lease.board.forget(slot)
        turn = turn._replace(seconds=time.perf_counter() - began)
        self._warn_of(turn)
        self._inbox.put(turn)
        return claimer, True

    def _transact(self, claimer: Claimer, slot: int) -> Turn | None:
        """Claim, run and settle one job in one transaction; None where none was due."""
        held: Held | None = None
        outcome: Settled | NotDone | None = None
        committed: list[bool] = []
        try:
            atomic.let_django_commit(self._database)
            with transaction.atomic(using=self._database, durable=True):
                # Kept whatever CONN_MAX_AGE says, as the worker's others: it claims on this one.
                connections[self._database].close_at = None
                held = self._claim(claimer, slot)
                if held is None:
                    return None
                transaction.on_commit(lambda: committed.append(True), using=self._database)
                outcome = self._run(held)
                # Now, as long as the row is locked: a commit that is refused gives it to anybody.
                self._at_stake.add(held.claim.token)
                if isinstance(outcome, NotDone):
                    execute = execute_on_django(self._database)
                    outcomes.settle(execute, self._lease.worker, [outcome])
        # As in execution: whatever the handler or its callbacks raise is the job's.
        except BaseException as error:
            if held is None:
                raise
            if committed:
                atomic.log_callback(held.claim, error)
            elif not isinstance(outcome, NotDone):
                outcome = execution.failed(held.claim, error, self._lease.name)
        if not committed and not isinstance(outcome, NotDone):
            left_open = leftovers.TransactionLeftOpen.on([self._database])
            outcome = execution.failed(held.claim, left_open, self._lease.name)
        if committed:
            self._at_stake.discard(held.claim.token)
        else:
            self._at_stake.add(held.claim.token)
        not_done = outcome if isinstance(outcome, NotDone) else None
        return Turn(held, not_done, settled=bool(committed))

    def _claim(self, claimer: Claimer, slot: int) -> Held | None:
        execute = execute_on_django(self._database)
        claimed = claimer.claim(execute, 1)
        if not claimed and not claimer.exhausted:
            claimer.hurry()
            claimed = claimer.claim(execute, 1)
        if not claimed:
            return None
        [claim] = claimed
        if claim.token in self._at_stake:
            transaction.set_rollback(True, using=self._database)
            return None
        with self._lock:
            self.jobs += 1
        self.wake()
        return Held.of(claim, slot, self._database)

    def _run(self, held: Held) -> Settled | NotDone:
        begin = partial(self._begin_turn, held)
        return atomic.run(
            held.claim, self._lease, self._database, begin, inner=True, line=held.line
        )

    def _begin_turn(self, held: Held) -> Deadline:
        thread = threading.get_ident()
        self._sessions[thread] = connections[self._database]
        self._lease.board.begin_transaction(held.slot, held.claim.claims)
        deadline = self._begin(held)
        self._running[thread] = (held, deadline)
        if deadline.seconds is not None:
            self._say_what_stops(deadline, held, thread)
        return deadline

    def _forget_thread(self) -> None:
        thread = threading.get_ident()
        self._running.pop(thread, None)
        self._sessions.pop(thread, None)

    def _warn_of_keys(self, due: float | None) -> None:
        """Say once that there are due jobs which the claim leaves alone."""
        if due is None or due > 0 or self._warned_of_keys:
            return
        self._warned_of_keys = True
        logger.warning(
            "Jobs with a concurrency key wait in a queue that this worker claims by transaction, and are "
            "not run by it. Claim that queue by lease, or set their concurrency_key to NULL."
        )

    def _warn_of(self, turn: Turn) -> None:
        if turn.held is None or turn.seconds < SLOW or turn.held.claim.kind in self._slow:
            return
        self._slow.add(turn.held.claim.kind)
        logger.warning(
            "A job of the kind %r kept its transaction open for %.0f s. While it does, PostgreSQL can "
            "clean up no table. Claim the queue of slow jobs by lease.",
            turn.held.claim.kind,
            turn.seconds,
            extra={"job_id": turn.held.claim.id, "kind": turn.held.claim.kind},
        )
