"""The worker: claim, run, settle, and stop without losing anything.

Three parts share little. The pump (the caller's thread) owns the connection that claims and
settles; handler threads take claims from a queue and leave outcomes; the keeper thread renews the
lease on a connection of its own and does maintenance.

Invariant: every claim is held from the statement that made it to the one that settles or releases
it, so whatever stops in between is known here, or else is found by the reaper.
"""

from __future__ import annotations

import logging
import math
import threading
import time
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
        # What handlers put in, an outcome or a claim that was not started, with the seconds it took;
        # None only wakes the pump. SimpleQueue.put() may be called from a signal handler.
        self._inbox: SimpleQueue[tuple[Outcome | Claim, float] | None] = SimpleQueue()
        self._unsettled: list[Outcome] = []
        self._unstarted: list[Claim] = []
        self._held: dict[int, Claim] = {}
        self._running: dict[int, Claim] = {}  # by thread
        self._starts = 0
        self._pace: float | None = None  # seconds that a handler takes, a moving average
        self._gone = threading.Event()  # tells the keeper to end
        self._stop_by = math.inf
        self._dead = False
        self._next_orphans = 0.0
        self._stalled = (0, time.monotonic())  # starts so far, and since when there were no more

    def stop(self) -> None:
        """Begin to stop: no new claims. Called again, do not wait for running jobs. For signals."""
        now = time.monotonic()
        self._stop_by = now if self._stopping else now + self._options.shutdown_timeout
        self._inbox.put(None)

    @property
    def _stopping(self) -> bool:
        return self._stop_by < math.inf

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
                if time.monotonic() >= self._stop_by:
                    return
                self._collect(backoff)
                backoff = min(backoff * 2, _LONGEST_BACKOFF)

    def _round(self) -> bool:
        """Settle, give back, claim, and wait for news; say whether there is a next round."""
        self._settle()
        self._give_back()
        if not self._stopping:
            self._claim()
        if not self._held and (self._stopping or (self._options.drain and self._lease.safe)):
            return False
        if time.monotonic() >= self._stop_by:
            return False
        self._collect(self._options.poll)
        return True

    def _collect(self, seconds: float) -> None:
        """Wait so long for the first news, then take all there is."""
        seconds = max(0.0, min(seconds, self._stop_by - time.monotonic()))
        try:
            news = self._inbox.get(timeout=seconds)
            while True:
                if news is not None:
                    self._note(*news)
                news = self._inbox.get_nowait()
        except Empty:
            pass

    def _note(self, outcome: Outcome | Claim, seconds: float) -> None:
        if isinstance(outcome, Claim):
            self._unstarted.append(outcome)
            return
        self._unsettled.append(outcome)
        self._pace = seconds if self._pace is None else 0.9 * self._pace + 0.1 * seconds
        if isinstance(outcome, Failed) and outcome.interrupts and not self._stopping:
            self.stop()

    def _settle(self) -> None:
        if self._unsettled:
            outcomes.settle(self._session.execute, self._lease.worker, self._unsettled)
            for outcome in self._unsettled:
                self._held.pop(outcome.claim.id, None)
            self._unsettled = []

    def _give_back(self) -> None:
        """Release what will not start here soon, and what is here without being known."""
        now = time.monotonic()
        if self._starts != self._stalled[0] or self._ready.empty():
            self._stalled = (self._starts, now)
        stalled = now - self._stalled[1] > self._options.poll
        if stalled:  # every thread has a long job: claim no more than one for each from now on
            self._pace = max(self._pace or 0.0, self._options.poll)
        if stalled or self._stopping:
            self._take_back()
        if self._unstarted:
            locked = claims.release(self._session.execute, self._lease.worker, self._unstarted)
            for claim in self._unstarted:
                if claim not in locked:
                    self._held.pop(claim.id, None)
            self._unstarted = locked
        if now >= self._next_orphans:
            held = self._held.values()
            lost = claims.release_orphans(self._session.execute, self._lease.worker, held)
            if lost:
                logger.warning("Gave %s jobs back that were claimed without an answer.", lost)
            self._next_orphans = now + conf.get().heartbeat

    def _take_back(self) -> None:
        """Take the claims that no thread has started out of the threads' queue."""
        try:
            while claim := self._ready.get_nowait():
                self._unstarted.append(claim)
        except Empty:
            pass

    def _claim(self) -> None:
        """Fill up to the wanted depth."""
        wanted = self._depth() - len(self._held)
        if wanted <= 0 or not self._lease.safe:
            return
        claimed = self._claimer.claim(self._session.execute, wanted)
        for claim in claimed:
            self._held[claim.id] = claim
            self._ready.put(claim)

    def _depth(self) -> int:
        """How many claims to hold: one for each thread, and short jobs ahead, by their pace."""
        threads = self._options.threads
        if self._pace is None:
            return threads
        ahead = AHEAD_SECONDS * threads / max(self._pace, 1e-6)
        return threads + int(min(ahead, MOST_AHEAD))

    def _give_up_running(self) -> list[Claim]:
        """Record the attempts that did not end in time, so that other workers can go on at once."""
        self._collect(0)
        running = list(self._running.values())
        error = ShutdownTimeout("The worker had to stop while the handler was running.")
        for claim in running:
            self._unsettled.append(execution.failed(claim, error, self._lease.name, delay=0.0))
        try:
            self._settle()
        except CONNECTION_ERRORS as unreachable:
            logger.critical("Stopped without settling %s jobs: %s", len(self._held), unreachable)
        return running

    def _register(self) -> None:
        options = self._options
        database, execute = options.database, self._session.execute
        for alias in connections:  # a pool checks what it gives out only if it was made like this
            connections.settings[alias]["CONN_HEALTH_CHECKS"] = True
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
                self._running.pop(thread, None)
                self._inbox.put((outcome, time.perf_counter() - started))
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
                    self._lease.beat(session.execute, stopping=self._stopping)
                    next_beat = time.monotonic() + interval
                more = reaper.run(session.execute).more
                pause = 0.0 if more else max(0.0, next_beat - time.monotonic())
            except WorkerDead as error:
                logger.critical("%s", error)
                self._dead = True
                self.stop()
                break
            except CONNECTION_ERRORS as error:
                logger.warning("The keeper cannot reach the database, trying again: %s", error)
                pause = min(1.0, interval)
            # Whatever it is, heartbeats must go on: without them every job here would be lost.
            except Exception:
                logger.exception("The keeper's round failed, trying again.")
                pause = min(1.0, interval)
        session.close()
