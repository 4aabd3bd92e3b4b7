"""The parent of the workers: starts them, keeps their leases, and says what became of them.

It runs no jobs, so nothing that a handler does can stop the heartbeats: not one that holds the GIL
for a minute, not one that takes its process with it. The main thread sees to the processes; what
asks the database is done in another, so that a server which does not answer delays no stop.

Invariant: a child's death is recorded, with the jobs that it had started, before anything is done
about them; and no child outlives its supervisor.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections import deque

from psycopg.errors import ReadOnlySqlTransaction

from django_pgjobs import charges, conf, rights
from django_pgjobs.children import NOTICE, STOPPED, Child
from django_pgjobs.companions import NOBODY, Companion
from django_pgjobs.keeper import AGAIN, Keeper
from django_pgjobs.leases import Lease
from django_pgjobs.mailbox import Mailbox
from django_pgjobs.plurals import counted
from django_pgjobs.resources import MemoryKills
from django_pgjobs.sessions import CONNECTION_ERRORS, Execute
from django_pgjobs.worker_options import WorkerOptions

logger = logging.getLogger(__name__)

TAKEN_FOR_DEAD = "taken for dead"
GRACE = 2.0  # seconds beyond the shutdown timeout that a child gets to write and exit
_LAST_WORDS = 1.0  # seconds in which the last deaths are recorded; without a server they are not
SILENCE = 10  # leases, or polls where those are longer, without a sign of life: a child is killed
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.5, 30.0  # seconds between starts that fail
_FAILED_STARTS = 5  # in a row after which the supervisor gives up: nothing here will ever work
_TICK = 1.0  # seconds between two looks at the children; their exits are noticed at once


class Supervisor:
    """Keeps a number of worker processes running."""

    def __init__(
        self, options: WorkerOptions, processes: int, companion: Companion = NOBODY
    ) -> None:
        """Prepare; nothing is started before `run()`. The companion is what runs beside the jobs in each."""
        self._options = options
        self._companion = companion
        self._processes = processes
        self._keeper = Keeper(options.database)
        self._children: list[Child] = []  # changed by the main thread alone
        self._dead: deque[Child] = deque()  # whose death is not recorded yet
        self._uncharged: list[Child] = []  # whose transactions the server has not ended yet
        self._inbox: Mailbox[None] = Mailbox()  # wakes run()
        self._duties: Mailbox[None] = Mailbox()  # wakes the thread of the duties
        self._memory_kills = MemoryKills()
        self._orders = 0  # how often it was told to stop
        self._obeyed = 0
        self._drained = 0
        self._failed_starts = 0
        self._failed_at = 0.0
        self._next_start = 0.0
        self._looked = time.monotonic()
        self._awake_since = 0.0
        self._registered = False  # whether any child ever was
        self._fatal: Exception | None = None
        self._over = False
        self._status = 0

    def stop(self) -> None:
        """Stop the children; called again, do not wait for running jobs. For signal handlers."""
        self._orders += 1
        self._inbox.put(None)

    def wake(self) -> None:
        """Look at the children now. For the handler of SIGCHLD."""
        self._inbox.put(None)

    def run(self) -> int:
        """Run until told to stop, or until all is drained; return the exit status.

        Raises:
            psycopg.Error: the first worker could not be registered, for another reason than that
                the database cannot be reached or written to.
            PrivilegeMissing: its role may not do, or not see, what a worker must.
            PgJobsError: the companion lacks something.

        """
        if self._options.drain:
            self._keeper.prepare_drain()
        duties = threading.Thread(target=self._do_duties, name="pgjobs-duties", daemon=True)
        duties.start()  # the children are started from this thread: they die with the one that did
        try:
            while self._fatal is None and (self._children or not self._finished):
                self._pass_orders_on()
                self._bury()
                self._start_missing()
                self._kill_stuck()
                self._inbox.take(self._pause)
        finally:
            for child in self._children:
                child.process.kill()
            self._over = True
            self._duties.put(None)
            duties.join(_LAST_WORDS)
        if self._fatal is not None:
            raise self._fatal
        if self._dead:
            logger.warning(
                "The end of %s could not be recorded.", counted(len(self._dead), "worker")
            )
        return self._status

    @property
    def _finished(self) -> bool:
        return self._orders > 0 or self._drained >= self._processes

    @property
    def _pause(self) -> float:
        now = time.monotonic()
        times = [self._next_start, *(child.kill_by for child in self._children)]
        return min([_TICK, *(at - now for at in times if at > now)])

    # ------------------------------------------------------------------------------ processes

    def _start_missing(self) -> None:
        if any(child.started_well and child.born > self._failed_at for child in self._children):
            self._failed_starts = 0  # one that works ends the row
        staying = [child for child in self._children if not child.board.leaving]
        missing = self._processes - self._drained - len(staying)
        if self._finished or missing <= 0 or time.monotonic() < self._next_start:
            return
        for _ in range(missing):
            born = time.monotonic()
            try:
                self._children.append(Child.start(self._options.most_held))
            except OSError as error:
                logger.error("No worker process can be started: %s", error)  # noqa: TRY400
                self._note_failed_start(born)
                return
        self._duties.put(None)

    def _pass_orders_on(self) -> None:
        orders = self._orders
        for _ in range(self._obeyed, orders):
            for child in self._children:
                hurry = child.kill_by < math.inf
                wait = 0.0 if hurry else self._options.shutdown_timeout
                child.kill_by = min(child.kill_by, time.monotonic() + wait + GRACE)
                child.order("stop")
                if not child.started_well:  # it holds nothing, and may be at its imports for long
                    child.kill(STOPPED)
        self._obeyed = orders

    def _kill_stuck(self) -> None:
        settings = conf.get()
        now = time.monotonic()
        if (
            now - self._looked > _TICK + settings.lease
        ):  # this process stood still, and so may they have
            self._awake_since = now
        self._looked = now
        silence = SILENCE * max(settings.lease, self._options.poll)
        for child in self._children:
            if now - max(child.heard, self._awake_since) > silence:
                child.kill("no sign of life")
            elif now > child.kill_by:
                child.kill("still busy at the end of the shutdown timeout")
            elif now - self._awake_since > NOTICE:
                child.time_out()
        self._keeper.cut(settings.silence)

    def _bury(self) -> None:
        """Take note of the children that have exited."""
        for child in list(self._children):
            if child.bury(self._memory_kills):
                self._children.remove(child)
                self._judge(child)
                self._dead.append(child)
                self._duties.put(None)
        self._memory_kills.look()
        if os.getpid() == 1:
            self._reap_adopted()

    def _judge(self, child: Child) -> None:
        """Decide what follows from the exit of a child."""
        if child.death == STOPPED:
            if child.board.leaving or self._orders:
                return
            if self._options.drain:
                self._drained += 1
                self._status = max(self._status, child.process.returncode)
            else:  # one of its handlers raised KeyboardInterrupt
                self.stop()
            return
        logger.error("Worker %s died: %s.", child.name, child.death)
        if self._orders:
            self._status = 1
        elif self._options.drain and self._options.max_jobs and child.started_well:
            # How many jobs it has done is not known here: another one might do too many.
            self._status = 1
            self._drained += 1
        elif child.death == TAKEN_FOR_DEAD:
            pass  # for want of heartbeats, which are ours: that says nothing about how it starts
        elif child.started_well:  # so starting it works: no reason to wait
            self._failed_starts, self._next_start = 0, 0.0
        else:
            self._note_failed_start(child.born)

    def _note_failed_start(self, born: float) -> None:
        """Wait longer for the next start, once for all that were started together."""
        if born < self._failed_at:
            return
        self._failed_at = now = time.monotonic()
        backoff = _FIRST_BACKOFF * 2**self._failed_starts
        self._failed_starts += 1
        self._next_start = now + min(backoff, _LONGEST_BACKOFF)
        working = any(child.started_well for child in self._children)
        if self._failed_starts >= _FAILED_STARTS and not working:
            logger.critical(
                "No worker could be started in %s tries: giving up. What they wrote says why.",
                self._failed_starts,
            )
            self._status = 1
            self.stop()

    def _reap_adopted(self) -> None:
        """As the first process of a container, take leave of the orphans that it is given."""
        own = {child.process.pid for child in self._children}
        with contextlib.suppress(ChildProcessError):
            # Look before taking: the end of a worker is its Popen's to learn.
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in own:
                    break  # it died a moment ago: the next round buries it first
                os.waitpid(ended.si_pid, os.WNOHANG)

    # --------------------------------------------------------- duties, in a thread of their own

    def _do_duties(self) -> None:
        pause = AGAIN
        while not self._over or self._dead or self._uncharged:
            self._duties.take(pause)
            done = self._keeper.attempt(self._record_deaths) and self._attempt_to_register()
            pause = self._renew() if self._registered else AGAIN
            if not done:
                pause = min(pause, AGAIN)
            elif self._uncharged:  # the server answers, so it will soon let go of their rows
                pause = charges.AGAIN
        self._keeper.close()

    def _attempt_to_register(self) -> bool:
        if self._registered:
            return self._keeper.attempt(self._register)
        try:
            self._register(self._keeper.session.execute)
        except (*CONNECTION_ERRORS, ReadOnlySqlTransaction) as error:
            self._keeper.session.close()  # a new one may find the primary
            self._keeper.complain(error)
            return False
        except Exception as error:  # noqa: BLE001 -- raised by run()
            self._fatal = error
            self.wake()
            return False
        return True

    def _register(self, execute: Execute) -> None:
        """Enter new children in the table of workers; each waits to be told its id."""
        for child in list(self._children):
            if child.lease is None:
                if not self._registered:
                    rights.demand(execute, "worker", self._options.database)
                    self._companion.demand()
                told = self._options.told
                lease = Lease.register(execute, child.board, pid=child.process.pid, **told)
                child.introduce(lease)
                self._registered = True

    def _record_deaths(self, execute: Execute) -> None:
        """Record each death and what had started, and let the reaper do the rest."""
        while self._dead:
            child = self._dead[0]
            child.record_death(execute)
            self._keeper.reap_now()
            self._dead.popleft()
            self._uncharged.append(child)
        for child in self._uncharged:
            if child.charge(execute):
                self._keeper.reap_now()
        self._uncharged = [child for child in self._uncharged if child.charges]

    def _renew(self) -> float:
        """Keep the leases; return the seconds until the next time."""
        kept = {child.lease: child for child in list(self._children) if child.lease is not None}
        lost, pause = self._keeper.keep(list(kept), stopping=self._orders > 0)
        for lease in lost:
            if kept[lease] in self._children and kept[lease].process.returncode is None:
                logger.critical("The worker %s was taken for dead and is killed.", lease.name)
                kept[lease].kill(TAKEN_FOR_DEAD)
        return pause
