"""The worker: claim, run, settle, and stop without losing anything.

Three parts share little. The pump (the caller's thread) owns the connection that claims and
settles; handler threads take claims from a queue and leave outcomes; the keeper thread renews the
lease on a connection of its own and does maintenance.

Invariant: every claim is held from the statement that made it to the one that settles or releases
it, so whatever stops in between is known here, or else is found by the reaper.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from django.db import connections

from django_pgjobs import claims, conf, execution, outcomes, reaper
from django_pgjobs.claims import Claim
from django_pgjobs.exceptions import PgJobsError, WorkerDead
from django_pgjobs.leases import Lease
from django_pgjobs.outcomes import Failed, Outcome
from django_pgjobs.sessions import CONNECTION_ERRORS, Session

logger = logging.getLogger(__name__)

MOST_AHEAD = 500  # claims waiting for a thread: larger batches gain nothing
AHEAD_SECONDS = (
    0.05  # of work, the time of some claims: short jobs wait in the process, long ones not
)
_LONGEST_BACKOFF = 5.0  # seconds between tries to reach the database


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """What `runjobs` was told. Times are seconds; `queues` None serves all but `exclude`."""

    database: str
    queues: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    threads: int = 8
    poll: float = 1.0
    shutdown_timeout: float = 30.0
    drain: bool = False


class ShutdownTimeout(PgJobsError):
    """A job was still running when the worker had to stop."""


class Worker:
    """One worker in this process."""

    def __init__(self, options: WorkerOptions) -> None:
        """Prepare; nothing is connected before `run()`."""
        self._options = options
        self._session = Session(options.database)
        self._ready: SimpleQueue[Claim | None] = SimpleQueue()
        self._finished: deque[tuple[Outcome | Claim, float]] = deque()
        self._unsettled: list[Outcome] = []
        self._unstarted: list[Claim] = []
        self._held: dict[int, Claim] = {}
        self._running: dict[int, Claim] = {}  # by thread
        self._starts = 0
        self._pace: float | None = None  # seconds that a handler takes, a moving average
        self._wake = threading.Event()
        self._gone = threading.Event()  # tells the keeper to end
        self._stop_by: float | None = None
        self._dead = False
        self._next_orphans = 0.0
        self._stalled = (0, time.monotonic())  # starts so far, and since when there were no more

    def stop(self) -> None:
        """Begin to stop: no new claims. Called again, do not wait for running jobs. For signals."""
        now = time.monotonic()
        first = self._stop_by is None
        self._stop_by = now + self._options.shutdown_timeout if first else now
        self._wake.set()

    def run(self) -> int:
        """Work until told to stop; return the exit status: 0, or 1 where something was given up."""
        self._register()
        keeper = threading.Thread(target=self._keep, name="pgjobs-keeper", daemon=True)
        handlers = [
            threading.Thread(target=self._handle, name=f"pgjobs-handler-{n}", daemon=True)
            for n in range(1, self._options.threads + 1)
        ]
        for thread in (keeper, *handlers):
            thread.start()
        try:
            self._pump()
            interrupted = self._give_up_running()
        finally:
            self._gone.set()
            for _ in handlers:
                self._ready.put(None)
        keeper.join(timeout=_LONGEST_BACKOFF)
        self._sign_off()
        self._session.close()
        return 1 if interrupted or self._dead or self._held else 0

    # -------------------------------------------------------------------------------- the pump

    def _pump(self) -> None:
        backoff = 0.1
        while True:
            try:
                if not self._round():
                    return
                backoff = 0.1
            except CONNECTION_ERRORS as error:
                logger.warning("The database cannot be reached, trying again: %s", error)
                self._next_orphans = 0.0  # a claim may have been made whose answer was lost
                if self._stop_by is not None and time.monotonic() >= self._stop_by:
                    return
                self._pause(backoff)
                backoff = min(backoff * 2, _LONGEST_BACKOFF)

    def _round(self) -> bool:
        """Settle, give back, claim; say whether there is a next round."""
        self._wake.clear()
        self._settle()
        self._release()
        if self._stop_by is not None:
            if not self._held or time.monotonic() >= self._stop_by:
                return False
            self._pause(self._options.poll)
            return True
        claimed = self._claim()
        if self._options.drain and not claimed and not self._held:
            return False
        self._pause(self._options.poll)
        return True

    def _pause(self, seconds: float) -> None:
        if self._stop_by is not None:
            seconds = min(seconds, max(0.0, self._stop_by - time.monotonic()))
        self._wake.wait(seconds)

    def _settle(self) -> None:
        taken = [self._finished.popleft() for _ in range(len(self._finished))]
        for outcome, seconds in taken:
            if isinstance(outcome, Claim):
                self._unstarted.append(outcome)
                continue
            self._unsettled.append(outcome)
            self._pace = seconds if self._pace is None else 0.9 * self._pace + 0.1 * seconds
            if isinstance(outcome, Failed) and outcome.interrupts and self._stop_by is None:
                self.stop()
        if self._unsettled:
            outcomes.settle(self._session.execute, self._lease.worker, self._unsettled)
            for outcome in self._unsettled:
                del self._held[outcome.claim.id]
            self._unsettled = []

    def _release(self) -> None:
        """Give back what will not start here soon, and what is only thought to be here."""
        now = time.monotonic()
        if self._starts != self._stalled[0] or self._ready.empty():
            self._stalled = (self._starts, now)
        if self._stop_by is not None or now - self._stalled[1] > self._options.poll:
            self._take_back()
        if self._unstarted:
            unstarted, self._unstarted = self._unstarted, []
            execute = self._session.execute
            locked = claims.release(execute, self._lease.worker, unstarted)
            for claim in unstarted:
                if claim not in locked:
                    del self._held[claim.id]
            self._unstarted = locked
        if now >= self._next_orphans:
            held = self._held.values()
            lost = claims.release_orphans(self._session.execute, self._lease.worker, held)
            if lost:
                logger.warning("Gave %s jobs back that were claimed without an answer.", lost)
            self._next_orphans = now + conf.get().heartbeat

    def _take_back(self) -> None:
        while True:
            try:
                claim = self._ready.get_nowait()
            except Empty:
                return
            if claim is not None:
                self._unstarted.append(claim)

    def _claim(self) -> int:
        """Fill up to the wanted depth; return how many were claimed."""
        wanted = self._depth() - len(self._held)
        if wanted <= 0 or self._dead or not self._lease.safe:
            return 0
        claimed = self._claimer.claim(self._session.execute, wanted)
        for claim in claimed:
            self._held[claim.id] = claim
            self._ready.put(claim)
        return len(claimed)

    def _depth(self) -> int:
        """How many claims to hold: one for each thread, and short jobs ahead, by their pace."""
        threads = self._options.threads
        if self._pace is None:
            return threads
        ahead = AHEAD_SECONDS * threads / max(self._pace, 1e-6)
        return threads + int(min(ahead, MOST_AHEAD))

    def _give_up_running(self) -> list[Claim]:
        """Record the attempts that did not end in time, so that other workers can go on at once."""
        running = list(self._running.values())
        error = ShutdownTimeout("The worker had to stop while the handler was running.")
        for claim in running:
            outcome = execution.failed(claim, error, self._lease.name)
            at_once = None if outcome.delay is None else 0.0
            self._finished.append((Failed(claim, outcome.error, at_once), 0.0))
        try:
            self._settle()
        except CONNECTION_ERRORS as unreachable:
            logger.critical("Stopped without settling %s jobs: %s", len(self._held), unreachable)
        return running

    def _register(self) -> None:
        options = self._options
        database, execute = options.database, self._session.execute
        self._lease = Lease(execute, queues=options.queues, threads=options.threads)
        self._claimer = claims.Claimer(
            database, self._lease.worker, options.queues, options.exclude
        )
        connections[database].close()  # Django's own was needed to compile the claim only
        logger.info("Worker %s started.", self._lease.name)

    def _sign_off(self) -> None:
        try:
            self._lease.sign_off(self._session.execute, "stopped")
        except CONNECTION_ERRORS as error:
            logger.warning("Stopped without saying so: %s", error)
        logger.info("Worker %s stopped.", self._lease.name)

    # -------------------------------------------------------------------- the handler threads

    def _handle(self) -> None:
        thread = threading.get_ident()
        try:
            while (claim := self._ready.get()) is not None:
                started = time.perf_counter()
                outcome: Outcome | Claim = claim
                if self._lease.safe and not self._dead:
                    self._starts += 1
                    self._running[thread] = claim
                    outcome = self._execute(claim)
                self._finished.append((outcome, time.perf_counter() - started))
                self._running.pop(thread, None)
                self._wake.set()
        finally:
            connections.close_all()

    def _execute(self, claim: Claim) -> Outcome:
        try:
            return execution.run_in_thread(claim, self._lease.name)
        # Cleaning up after a job can fail too, with its connection for one. The thread must live.
        except BaseException as error:  # noqa: BLE001
            return execution.failed(claim, error, self._lease.name)

    # ------------------------------------------------------------------------------ the keeper

    def _keep(self) -> None:
        session = Session(self._options.database)
        interval = conf.get().heartbeat
        next_beat, pause = 0.0, 0.0
        while not self._gone.wait(pause):
            try:
                if time.monotonic() >= next_beat:
                    self._lease.beat(session.execute, stopping=self._stop_by is not None)
                    next_beat = time.monotonic() + interval
                more = reaper.run(session.execute).more
                pause = 0.0 if more else max(0.0, next_beat - time.monotonic())
            except WorkerDead as error:
                logger.critical("%s", error)
                self._dead = True
                self.stop()
                break
            # Whatever it is, heartbeats must go on: without them every job here would be lost.
            except Exception:
                logger.exception("The keeper's round failed, trying again.")
                pause = min(1.0, interval)
        session.close()
