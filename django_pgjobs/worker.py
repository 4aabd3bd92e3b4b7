"""The worker: claim, run, settle, and stop without losing anything.

The pump, in the caller's thread, owns the connection that claims and settles. It gives claims to the
handlers' threads and takes their outcomes from one inbox; a keeper beside it, in a thread or in the
supervisor's process, renews the lease.

Invariant: every claim is held from the statement that made it to the one that settles or releases
it, so whatever stops in between is known here, or else is found by the reaper.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from django.db import connections

from django_pgjobs import conf, forks, outcomes, resources
from django_pgjobs.attempts import Held, Inbox, News, Turn
from django_pgjobs.claims import Claim, Token
from django_pgjobs.companions import NOBODY, Companion
from django_pgjobs.exceptions import PgJobsError
from django_pgjobs.figures import Figures
from django_pgjobs.handlers import Handlers
from django_pgjobs.holdings import Holdings
from django_pgjobs.intake import Intake
from django_pgjobs.leases import Lease
from django_pgjobs.listener import Listener
from django_pgjobs.outages import Outage
from django_pgjobs.outcomes import Done, Failed, NotDone, Outcome, Settled
from django_pgjobs.plurals import counted
from django_pgjobs.relay import Relay
from django_pgjobs.sessions import DATABASE_ERRORS, Session
from django_pgjobs.shares import Share
from django_pgjobs.transactions import Transactions
from django_pgjobs.worker_options import WorkerOptions

logger = logging.getLogger(__name__)

_LOCKED = 0.1  # seconds until a row that was locked is tried again
_BRIEFLY = 0.5  # seconds that the figures may wait for a lock
_JOIN = 2.0  # seconds in which threads close their connections and end


class ShutdownTimeout(PgJobsError):
    """A job was still running when the worker had to stop."""


class RunnerFailed(PgJobsError):
    """What surrounds the handlers has failed: a claim may be in nobody's hands."""


class Worker:
    """One worker in this process."""

    def __init__(
        self, options: WorkerOptions, lease: Lease, session: Session, companion: Companion = NOBODY
    ) -> None:
        """Prepare to work under `lease`, on a connection that nobody else uses."""
        self._companion = companion
        self._options = options
        self._lease = lease
        self._session = session
        self._briefly = partial(session.execute, patience=_BRIEFLY)  # what no job may wait for
        self._inbox = Inbox()  # what the handlers' threads put in
        self._holdings = Holdings(lease, session.execute, self._note_decided)
        self._settled = 0
        self._share = options.max_jobs and Share(options.max_jobs, companion)
        self._is_odd = False  # this round, of two
        self._stop_by = math.inf
        self._leaving = False  # claims no more, and ends when what it holds has ended
        self._dead = False
        self._refused = False
        self._next_check = 0.0
        self.figures = Figures()
        self.drained = False  # whether it ended since nothing was due any more
        self._relay = Relay(lease.worker, options.poll)
        self._transactions: Transactions | None = None

    def stop(self) -> None:
        """Begin to stop: no new claims. Called again, do not wait for running jobs. For signals."""
        now = time.monotonic()
        self._stop_by = now if self.stopping else now + self._options.shutdown_timeout
        self._companion.stop()
        self._inbox.put(None)

    def lose(self) -> None:
        """Stop because the death of this worker is recorded: its jobs may run elsewhere."""
        logger.critical("The worker %s was taken for dead and must stop.", self._lease.name)
        self._dead = True
        self._lease.board.acknowledge(-math.inf)  # not safe any more: nothing starts
        self.stop()

    @property
    def stopping(self) -> bool:
        """Whether the worker was told to stop."""
        return self._stop_by < math.inf

    def run(self) -> int:
        """Work until told to stop; return the exit status: 0, or 1 where something was given up."""
        forks.guard()
        self._persist(self._compile)
        self._handlers = Handlers(self._lease, self._options, self._inbox)
        self._transactions = self._handlers.transactions
        logger.info("Worker %s started.", self._lease.name)
        listener = self._listen() if self._options.notify and not self._options.drain else None
        self._companion.start(lambda: self._inbox.put(None))
        try:
            self._persist(self._round)
            interrupted = self._give_up_running() or self._companion.busy
        finally:
            self._handlers.close()
            self._companion.close()
            if listener is not None:
                listener.close()
            if self._options.ends < math.inf:  # the process goes on: leave nothing behind
                self._handlers.join(_JOIN)
        logger.info("Worker %s stopped.", self._lease.name)
        given_up = interrupted or self._dead or self._refused or self._companion.failed
        return 1 if given_up or self._holdings else 0

    def _listen(self) -> Listener:
        jobs = self._options.database
        alias = conf.get().listen_database or jobs
        return Listener(alias, jobs, self._options.serves, lambda: self._inbox.put(None))

    def _persist(self, step: Callable[[], bool]) -> None:
        """Take this step again and again until it says that it was the last, or it is time to stop."""
        outage = Outage()
        while True:
            try:
                if not step():
                    return
                outage.end()
            except DATABASE_ERRORS as error:
                self._session.close()  # a new one may find another server, after a failover
                backoff = outage.note(error)
                self._next_check = 0.0  # a claim may have been made whose answer was lost
                if not self.stopping and outage.hopeless:
                    logger.critical("Worker %s stops: it is refused for good.", self._lease.name)
                    self._refused = True
                    self.stop()
                if time.monotonic() >= self._stop_by or (self.stopping and not self._busy):
                    return
                self._collect(backoff)

    def _compile(self) -> bool:
        """Compile the claim, on a connection that is needed for this only."""
        self._lease.board.answer()
        self._intake = Intake(self._options, self._lease.worker)
        connections[self._options.database].close()
        return False

    def _round(self) -> bool:
        """Settle, give back, claim, and wait for news; say whether there is a next round."""
        self._lease.board.answer()
        self._share_out(claiming=True)
        # Asked before the claim: what ends after it may have enqueued something.
        beside = self._companion.busy
        self._relay.carry(self._session.execute, self._handlers)
        self._give_back()
        self._holdings.retake()
        if (self._room > 0 or any(self._rooms())) and self._intake.limited_goes_first():
            self._claim_limited()
        self._settle_and_claim()
        self._claim_limited()
        drained = self._handlers.look(self._options, ending=self.stopping or self._leaving)
        stuck = len(self._handlers.stuck)
        if stuck and not self._leaving:
            logger.warning("A handler does not stop: worker %s claims no more.", self._lease.name)
            self._leave()
            return True
        if self._busy <= stuck and (self.stopping or self._leaving):
            return False
        drained = drained and self._intake.exhausted and not beside
        if not self._busy and self._options.drain and drained:
            self.drained = True
            return False
        if time.monotonic() >= self._stop_by:
            return False
        self._share_out(claiming=False)
        self._collect(self._pause(drained=drained))
        return True

    def _share_out(self, *, claiming: bool) -> None:
        """Let the companion begin what no job needs until this is called again."""
        if not self._share or not self._share.is_wanted or not self._may_claim:
            return
        kept: float = self._lease.board.free + self._options.threads if claiming else 0
        if self._transactions and not claiming:
            # Half, in turn rounded up and down: neither waits for ever for the other.
            self._is_odd = not self._is_odd
            kept = self._transactions.halve(up=self._is_odd)
        self._share.set(self._jobs, kept)

    def _pause(self, *, drained: bool) -> float:
        """How long to wait for news before there is something to do without any."""
        pause = min(self._options.poll, conf.get().heartbeat)  # so often the supervisor wants news
        pause = min(pause, self._relay.seconds)
        if self._room > 0:
            pause = min(pause, self._intake.seconds)
        else:
            rooms = self._rooms()
            pause = min([pause, *(self._intake.seconds_to(among=among) for *_, among in rooms)])
        if self._holdings.waits or (self._options.drain and not drained):
            pause = min(pause, _LOCKED)
        return pause

    def _collect(self, seconds: float) -> None:
        """Wait so long for the first news, then take all there is."""
        seconds = max(0.0, min(seconds, self._stop_by - time.monotonic()))
        for news in self._inbox.take(seconds):
            if isinstance(news, News):
                self._note(news)
            elif news is None:
                if self._transactions:
                    self._transactions.next_look = 0.0
            elif isinstance(news, BaseException):
                raise RunnerFailed("A thread that runs handlers has failed.") from news
            else:
                self._note_turn(news)

    def _note(self, news: News) -> None:
        self._handlers.note(news)
        self._relay.note_end(news.held)
        outcome = news.outcome
        if isinstance(outcome, Done):
            self.figures.add(news.held.claim, news.seconds, failed=False)
            self._holdings.unsettled.append(outcome)
        elif outcome is None:
            self._holdings.note_unstarted([news.held])
        elif isinstance(outcome, Settled):
            self.figures.add(news.held.claim, news.seconds, failed=False)
            self._note_settled(self._holdings.let_go([outcome]))
        else:
            self._holdings.unsettled.append(outcome)
            self._note_not_done(outcome, news.seconds)

    def _note_not_done(self, outcome: NotDone, seconds: float) -> None:
        if isinstance(outcome, Failed):
            self.figures.add(outcome.claim, seconds, failed=True)
            if outcome.interrupts and not self.stopping:
                self.stop()

    def _settle_and_claim(self) -> None:
        """Settle what has ended and claim what can start, the bulk of both in one round trip."""
        wanted = self._room
        if wanted <= 0:
            self._settle(self._holdings.unsettled)
        elif self._settle_and_claim_any(wanted) < wanted:
            return
        for limit, kinds, among in self._rooms():
            self._hold(self._intake.claim_kinds(self._session.execute, limit, kinds, among=among))

    def _settle_and_claim_any(self, wanted: int) -> int:
        done, others = outcomes.split(self._holdings.unsettled)
        self._settle(others)
        execute = self._session.execute
        claimed, missed = self._intake.settle_and_claim(execute, [d.claim for d in done], wanted)
        self._hold(claimed)
        self._note_settled(self._holdings.let_go_completed(done, missed))
        return len(claimed)

    def _claim_limited(self) -> None:
        """Claim what has limits: of any kind, then for what room is left of either sort."""
        wanted = self._room
        if wanted > 0:
            claimed = self._intake.claim_limited(self._session, wanted)
            self._hold(claimed)
            if len(claimed) < wanted:
                return
        for limit, kinds, among in self._rooms():
            claim = self._intake.claim_limited_kinds
            self._hold(claim(self._session, limit, kinds, among=among))

    def _hold(self, claimed: list[Claim]) -> None:
        self._holdings.hold(self._handlers.submit(claimed))

    def _settle(self, ended: list[Outcome]) -> None:
        self._note_settled(self._holdings.settle(ended))

    def _note_settled(self, settled: Sequence[Outcome | Settled]) -> None:
        """Take note of what is over: it has left its limits, and may have enqueued something."""
        if not settled:
            return
        self._settled += len(settled)
        self._intake.let_go([outcome.claim.id for outcome in settled])
        self._intake.expect(settled)
        if self._transactions:
            self._transactions.doubt()
        self._companion.doubt()

    def _give_back(self) -> None:
        """Release what will not start here soon, and what is here without being known."""
        now = time.monotonic()
        if self.stopping or self._handlers.stuck:
            unstarted = self._handlers.take_back()
        else:
            unstarted = self._handlers.take_back_stalled(self._options.poll)
        self._release(unstarted)
        if now >= self._next_check:
            self._check()
            self._next_check = now + conf.get().heartbeat

    def _release(self, unstarted: list[Held]) -> None:
        self._holdings.note_unstarted(unstarted)
        self._intake.let_go(self._holdings.release())

    def _check(self) -> None:
        """Look for claims without an owner, and for a reason to be replaced."""
        self.figures.write(self._briefly)
        if lost := self._holdings.release_orphans():
            logger.warning("Gave %s back, claimed without an answer.", counted(lost, "job"))
        most = self._options.max_rss
        # Not before it has done something: else one that starts too big would never do anything.
        if most is not None and self._settled and (used := resources.memory()) > most:
            logger.info("Worker %s uses %s MB: it claims no more.", self._lease.name, used >> 20)
            self._leave()

    def _leave(self) -> None:
        """Claim nothing more, end with what is running, and be replaced at once."""
        self._leaving = True
        self._lease.board.leave()
        self._companion.stop()

    @property
    def _room(self) -> int:
        """How many jobs of any kind can be claimed now."""
        return min(self._most(), self._handlers.room)

    def _rooms(self) -> Iterator[tuple[int, Sequence[str], bool]]:
        """For claims of some kinds only: how many can be claimed now of those that are (not) meant."""
        for runner, kinds, among in self._handlers.rooms:
            if (limit := min(self._most(), runner.room)) > 0:
                yield limit, kinds, among

    def _most(self) -> int:
        """How many jobs this worker may claim at all."""
        if not self._may_claim:
            return 0
        free = left = self._lease.board.free
        running = self._transactions.jobs if self._transactions else 0
        if self._share:
            left = self._share.left(self._jobs)
        if self._transactions:
            # Each that is begun may be lost, and is held by a slot of its own then.
            self._transactions.allowed = min(free, left)
            free -= self._options.threads
            left -= running
        if self._share and self._share.is_used_up(self._jobs + running):
            self._leaving = True
            self._companion.finish()
            if not self._options.drain:  # which is over then
                self._lease.board.leave()
        return min(free, left) if self._options.by_lease else 0

    @property
    def _may_claim(self) -> bool:
        return not (self.stopping or self._leaving) and self._lease.safe

    @property
    def _jobs(self) -> int:
        """How many jobs were settled here or are held, but for those in transactions."""
        return self._settled + len(self._holdings)

    def _give_up_running(self) -> list[Held]:
        """Record the attempts that did not end in time, so that other workers can go on at once."""
        self._handlers.start_nothing()
        self._collect(0)
        stuck = self._handlers.stuck  # until their process has ended nobody else may start them
        running = [held for held in self._handlers.running if held not in stuck]
        error = ShutdownTimeout("The worker had to stop while the handler was running.")
        try:
            self._give_up(running, lambda _: error, delay=0.0)
            self._release(self._handlers.take_back())
            self.figures.write(self._briefly)
        except DATABASE_ERRORS as unreachable:
            logger.critical(
                "Left %s unsettled: %s", counted(len(self._holdings), "job"), unreachable
            )
        return running

    def settle_stuck(self) -> None:
        """Record the attempts that did not stop at their timeout: for a process that ends now."""
        self._collect(0)
        self._give_up(self._handlers.stuck, Held.timed_out)

    def _give_up(
        self,
        running: Sequence[Held],
        error: Callable[[Held], PgJobsError],
        delay: float | None = None,
    ) -> None:
        self.figures.failed += len(running)
        cut = self._transactions.cut(running) if self._transactions else []
        self._note_settled(self._holdings.give_up(running, cut, error, delay))

    @property
    def _busy(self) -> int:
        """How many jobs are here, or may be in a moment, and how much goes on beside them."""
        jobs = len(self._holdings) + (self._transactions.busy if self._transactions else 0)
        return jobs + self._companion.busy

    def _note_decided(self, token: Token) -> None:
        if self._transactions:
            self._transactions.resume(token)

    def _note_turn(self, turn: Turn) -> None:
        if turn.held is None or self._transactions is None:
            return
        self._transactions.hear()
        self._intake.doubt()  # it may have enqueued something
        if turn.settled:
            self._settled += 1
        elif turn.not_done is not None:
            self._holdings.note_lost(turn.held, turn.not_done)
            self._lease.board.forget(turn.held.slot)  # it has a slot of its own now
        if turn.not_done is None:
            self.figures.add(turn.held.claim, turn.seconds, failed=False)
        else:
            self._note_not_done(turn.not_done, turn.seconds)
