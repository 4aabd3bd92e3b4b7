"""The loop that serves one consumer: read, hand over, prolong, acknowledge.

It is a thread with a connection of its own. Acknowledgements go together, and a message is held by (id, read_ct):
one that was lost and read again is another one.

Invariant: a message leaves the queue only after its handler has returned, or was given up for good; whatever stops
in between, it is read again when its time is over.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from psycopg import errors

from django_pgjobs import failures, sessions
from django_pgjobs.exceptions import PgJobsError
from django_pgjobs.outages import Outage
from django_pgjobs.pgmq import calls
from django_pgjobs.pgmq.acks import Acks, Held
from django_pgjobs.pgmq.allowances import Allowance
from django_pgjobs.pgmq.consumers import Consumer
from django_pgjobs.pgmq.dead_letters import ERROR
from django_pgjobs.pgmq.grants import tables_of
from django_pgjobs.pgmq.hands import Ended, Hands, Inbox, Late
from django_pgjobs.pgmq.messages import read
from django_pgjobs.plurals import counted
from django_pgjobs.sessions import DATABASE_ERRORS, Session
from django_pgjobs.worker_options import WorkerOptions

logger = logging.getLogger(__name__)

_PART = 3  # a message is prolonged when this part of its time is over
# Work that may wait here for a thread, in seconds. Short messages are read ahead, long ones are not, so that none
# waits behind them while another process is idle.
_AHEAD = 0.05
# Handlers that take less, in seconds, are waited for, so long at most: what ends together is written together.
_SHORT = 0.002
_BATCH = 100  # more are not waited for: the others are handled while the server writes these


class Pump:
    """Serves one consumer until it is stopped."""

    def __init__(  # noqa: PLR0913, PLR0917 -- all that a process has made for it
        self,
        consumer: Consumer,
        hands: Hands,
        inbox: Inbox,
        options: WorkerOptions,
        allowance: Allowance,
        wake: Callable[[], None],
    ) -> None:
        """Prepare; `wake` is called when there is nothing left to do."""
        self.exhausted = False  # the last look found nothing to read
        self.is_lost = False  # the queue is not there, or is refused for good
        self._consumer = consumer
        self._name = consumer.queue.name
        self._hands = hands
        self._inbox = inbox
        self._poll = options.poll
        self._drains = options.drain
        self._allowance = allowance
        self._wake = wake
        self._session = Session(consumer.queue.alias)
        self._acks = Acks(consumer, self._session.execute)
        self._held: set[Held] = set()
        self._ended: list[Ended] = []
        self._locked: list[Ended] = []  # by somebody else, when this was to be written
        self._again_at = 0.0  # when it is tried again
        self._worn: list[Held] = []  # read too often: for no handler any more
        self._pace: float | None = None  # seconds that a handler takes, a moving average
        self._moved = 0.0  # when a message has last ended
        self._prolong_at = 0.0
        self._stopping = self._gives_back = self._over = False
        self._thread = threading.Thread(target=self._run, name=f"pgmq-{self._name}", daemon=True)

    @property
    def busy(self) -> bool:
        """Whether messages are held here, or may be in a moment."""
        if self._stopping:
            return not self._over
        return bool(self._held) or (self._drains and not self.exhausted)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self) -> None:
        """Read no more, and end after what is held."""
        self._stopping = True
        self._inbox.put(None)

    def stop(self) -> None:
        """Read no more, and end after what is running."""
        self._gives_back = True
        self.finish()

    def join(self, seconds: float) -> None:
        """Wait so long for the end."""
        self._thread.join(seconds)

    def look(self) -> None:
        """Look for messages now. Any thread may call it."""
        self._inbox.put(None)

    def _run(self) -> None:
        outage = Outage()
        try:
            while self._try(outage):
                pass
        finally:
            self._hands.close()
            self._session.close()
            self._over = True
            self._wake()

    def _try(self, outage: Outage) -> bool:
        """Make a round; say whether there is a next one."""
        try:
            pause = self._round()
        except DATABASE_ERRORS as error:
            self._session.close()
            pause = self._note_outage(outage, error)
        # Messages are held here: whatever is wrong, they must be prolonged and acknowledged.
        except Exception:
            logger.exception("The consumer of the queue %r has failed, and goes on.", self._name)
            pause = self._poll
        else:
            outage.end()
        if self._stopping and not self._held:
            return False
        self._collect(pause)
        return True

    def _note_outage(self, outage: Outage, error: Exception) -> float:
        """Take note of what the server said; return the seconds to wait until the next try."""
        missing = self._missing(error)
        if missing is None:
            pause = outage.note(error)
            if not (self._drains and outage.hopeless):
                return pause
            logger.critical("The queue %r is left alone: it is refused for good.", self._name)
        else:
            if not self.is_lost:
                logger.error("%s It is looked for again.", missing)
            pause = outage.pause()
        self.is_lost = True
        self._let_go()
        return pause

    def _missing(self, error: Exception) -> PgJobsError | None:
        """Return that the queue is missing, if it is: a trigger of somebody's may miss another table."""
        if not isinstance(error, calls.MISSING):
            return None
        with suppress(*DATABASE_ERRORS):
            tables = tables_of([self._name])
            if len(calls.tables(self._session.execute, tables)) < len(tables):
                return calls.missing(error, self._consumer.queue.alias, self._name)
        return None

    def _let_go(self) -> None:
        """Forget messages that cannot be written any more: all but those that are being handled."""
        unstarted = self._hands.take_back()
        self._allowance.give_back(len(unstarted))
        written = {ended.held for ended in [*self._ended, *self._locked]}
        self._held -= written.union(self._worn, unstarted)
        for part in (self._ended, self._locked, self._worn):
            part.clear()
        self.exhausted = True
        self._wake()

    def _round(self) -> float:
        """Write what is to be written, read what there is room for; return how long nothing is due."""
        if self._locked and time.monotonic() >= self._again_at:
            self._ended += self._locked
            self._locked.clear()
        if self._worn or any(ended.error is not None for ended in self._ended):
            self._acknowledge(0)
            self._give_up_and_fail()
        if self._gives_back or self._stalls:
            self._give_back()
        if self._held and time.monotonic() >= self._prolong_at:
            self._prolong()
        room = 0 if self._stopping else self._depth - len(self._held) + len(self._ended)
        self._acknowledge(max(0, room))
        return 0.0 if self._worn else min(self._poll, self._consumer.vt / _PART)

    @property
    def _depth(self) -> int:
        """How many messages to hold: one for each thread, and short ones ahead, by their pace."""
        depth = capacity = self._hands.capacity
        if self._pace is not None:
            depth += int(_AHEAD * capacity / max(self._pace, 1e-6))
        return min(depth, self._consumer.qty)

    @property
    def _stalls(self) -> bool:
        """Whether messages that were read ahead wait, since the handlers have become slow."""
        waited = time.monotonic() - self._moved
        if len(self._held) <= self._hands.capacity or waited <= max(self._poll, _AHEAD):
            return False
        self._pace = waited
        return True

    def _collect(self, seconds: float) -> None:
        news: list[Ended | None] = []
        left = len(self._held) - len(self._ended)
        if left and self._pace is not None and self._pace < _SHORT:
            news = self._inbox.take(_SHORT, least=min(left, _BATCH))
            if len(news) < left:
                self._hands.hurry()
        news = news or self._inbox.take(seconds)
        ended = [one for one in news if one is not None]
        for one in ended:
            pace = one.seconds if self._pace is None else self._pace
            self._pace = 0.9 * pace + 0.1 * one.seconds
            if one.error is not None and not issubclass(type(one.error), Late):
                text = "The handler of message %s of the queue %r failed, read for the %s. time."
                self._log(logging.WARNING, text, one.held, one.held.read_ct, error=one.error)
        if ended:
            self._moved = time.monotonic()
        self._ended += ended

    def _acknowledge(self, room: int) -> None:
        """Write what was handled, and read as many messages as there is room for: one statement for both."""
        handled = [ended for ended in self._ended if ended.error is None]
        done = [ended.held for ended in handled if not ended.acknowledged]
        room = self._allowance.take(room)
        found: list[Held] = []
        try:
            if room:
                self.exhausted = False
                gone, found = self._acks.acknowledge_and_read(done, room)
            else:
                gone = self._acks.acknowledge(done)
        finally:
            self._allowance.note(room, len(found))
        self._ended = [ended for ended in self._ended if ended.error is not None]
        left = []
        for ended in handled:
            if ended.acknowledged or ended.held.id in gone:
                self._log(logging.INFO, "Message %s of the queue %r is handled.", ended.held)
                self._held.discard(ended.held)
            else:
                left.append(ended)
        self._leave(left, "before it was handled")
        if room:
            if self.is_lost:
                logger.warning("The queue %r can be used again.", self._name)
                self.is_lost = False
            self._take_in(found)
            self.exhausted = len(found) < room
            if self.exhausted and not self._held:
                self._wake()

    def _take_in(self, found: Sequence[Held]) -> None:
        if not self._held:
            self._moved = time.monotonic()
            self._prolong_at = self._moved + self._consumer.vt / _PART
        self._held.update(found)
        worn = [held for held in found if held.read_ct > self._consumer.max_reads]
        self._worn += worn
        fit = [held for held in found if held not in worn]
        self._hands.put(fit, math.inf if self._pace is None else self._pace * len(fit))

    def _leave(self, left: Sequence[Ended], when: str) -> None:
        """Keep for later what could not be written since somebody has it locked, and note what is too late."""
        mine = self._acks.still_mine([ended.held for ended in left])
        locked = [ended for ended in left if ended.held.id in mine]
        if locked:
            self._locked += locked
            self._again_at = time.monotonic() + self._poll
        self._note_late([ended.held for ended in left if ended.held.id not in mine], when)

    def _prolong(self) -> None:
        ended = {one.held for one in self._ended}
        held = list(self._held - ended)
        left = {one.id for one in held} - self._acks.prolong(held)
        self._prolong_at = time.monotonic() + self._consumer.vt / _PART
        # An atomic handler may have committed a moment ago, and says itself what it was too late for.
        if left and not self._consumer.atomic:
            missing = [one for one in held if one.id in left]
            mine = self._acks.still_mine(missing)
            self._note_late(
                [one for one in missing if one.id not in mine], "while its handler runs"
            )

    def _give_back(self) -> None:
        """Let others read what no handler has begun. Once: read_ct falls, so a second try could meet theirs."""
        unstarted = self._hands.take_back()
        self._held.difference_update(unstarted)
        self._allowance.give_back(len(unstarted))
        self._acks.give_back(unstarted)

    def _give_up_and_fail(self) -> None:
        """Write what has failed, one by one; what fails here is left for the next round."""
        while self._ended:
            if (error := self._ended[0].error) is not None:
                self._fail(self._ended[0], error)
            del self._ended[0]
        while self._worn:
            self._give_up(self._worn[0], _why_worn(self._worn[0]))
            del self._worn[0]

    def _fail(self, ended: Ended, error: BaseException) -> None:
        held = ended.held
        if issubclass(type(error), Late):
            self._note_late([held], "before its transaction could be committed")
            return
        entry = failures.entry(error, attempt=held.read_ct, worker="")
        record = {key: entry[key] for key in ("error", "message")} | {"read_ct": held.read_ct}
        if not self._acks.fail(held, record):
            self._leave([ended], "before its error was recorded")
            return
        if held.read_ct >= self._consumer.max_reads:
            self._give_up(held, failures.summary(entry))
        self._held.discard(held)

    def _give_up(self, held: Held, reason: str) -> None:
        letters = self._consumer.dead_letters
        where = "the archive" if letters is None else f"the queue {letters.name!r}"
        text = "Message %s of the queue %r is given up, and is in %s now: %s"
        try:
            gone = self._acks.archive(held) if letters is None else self._acks.bury(held, reason)
        except (
            errors.UndefinedTable
        ) as error:  # of the dead letters: this message must hold up no other
            text = "Message %s of the queue %r is given up, but cannot go into %s: %s. Create that queue."
            gone, reason = {held.id}, sessions.reason(error)
        if gone:
            self._log(logging.ERROR, text, held, where, reason)
        self._held.discard(held)

    def _note_late(self, held: Sequence[Held], when: str) -> None:
        for one in held:
            text = "Message %s of the queue %r was read by somebody else, or removed, %s."
            self._log(logging.WARNING, text, one, when)
            self._held.discard(one)

    def _log(
        self, level: int, text: str, held: Held, *facts: object, error: BaseException | None = None
    ) -> None:
        if not logger.isEnabledFor(level):
            return
        extra = {"queue": self._name, "message_id": held.id, "read_ct": held.read_ct}
        try:
            logger.log(level, text, held.id, self._name, *facts, exc_info=error, extra=extra)
        # Whoever formats the record asks the exception, whose methods may raise even a SystemExit.
        except BaseException:  # noqa: BLE001
            logger.log(level, text, held.id, self._name, *facts, extra=extra)


def _why_worn(held: Held) -> str:
    """Return why a message has been read too often: no handler came to its end, or not since the last error."""
    reads = held.read_ct - 1  # the last read only found that out
    headers = read(held.headers, plain=True)
    error = headers.get(ERROR) if isinstance(headers, dict) else None
    if isinstance(error, dict) and {"error", "message", "read_ct"} <= error.keys():
        failed_at = error["read_ct"]
        if type(failed_at) is int and 1 <= failed_at <= reads:
            last, silent = failures.summary(error), reads - failed_at
            if not silent:
                return last
            of_these = "the last" if silent == 1 else f"the last {silent}"
            return (
                f"It was read {reads} times; {of_these} ended without a word (before that: {last})."
            )
    return f"It was read {counted(reads, 'time')}, and no handler came to its end."
