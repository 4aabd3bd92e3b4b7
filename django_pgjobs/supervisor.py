"""The parent of the workers: starts them, keeps their leases, and says what became of them.

It runs no jobs, so nothing that a handler does can stop the heartbeats: not one that holds the GIL
for a minute, not one that takes its process with it.

Invariant: a child's death is recorded, with the jobs that it had started, before anything is done
about them; and no child outlives its supervisor.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import IO

from django_pgjobs import conf, resources
from django_pgjobs.board import Board
from django_pgjobs.keeper import Keeper
from django_pgjobs.leases import Lease
from django_pgjobs.sessions import CONNECTION_ERRORS
from django_pgjobs.worker import WorkerOptions

logger = logging.getLogger(__name__)

CHILD = "PGJOBS_CHILD"  # makes runjobs a child: the descriptors of its board and of its orders
GRACE = 2.0  # seconds beyond the shutdown timeout that a child gets to write and exit
SILENCE = 10  # leases without a sign of life after which a child is killed
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.5, 30.0  # seconds between starts that fail
_FAILED_STARTS = 5  # in a row after which the supervisor gives up: nothing here will ever work
_TICK = 1.0  # seconds between two looks at the children; their exits are noticed at once


@dataclass(eq=False)
class Child:
    """One worker process, from its start until its death is recorded."""

    process: subprocess.Popen[bytes]
    orders: IO[str]
    board: Board
    oom_kills: int | None
    lease: Lease | None = None  # until the database answers
    death: str = ""
    kill_by: float = math.inf
    born: float = field(default_factory=time.monotonic)

    def order(self, word: str) -> None:
        """Send one line. A child that is gone already needs none."""
        with contextlib.suppress(OSError):
            self.orders.write(f"{word}\n")
            self.orders.flush()

    @property
    def started_well(self) -> bool:
        """Whether it has gone round at least once since it was started."""
        return self.board.answered > self.born


class Supervisor:
    """Keeps a number of worker processes running."""

    def __init__(self, options: WorkerOptions, processes: int) -> None:
        """Prepare; nothing is started before `run()`."""
        self._options = options
        self._processes = processes
        self._keeper = Keeper(options.database)
        self._children: list[Child] = []
        self._dead: list[Child] = []  # whose death is not recorded yet
        self._inbox: SimpleQueue[None] = SimpleQueue()  # wakes run(); put() is safe for signals
        self._orders = 0  # how often it was told to stop
        self._obeyed = 0
        self._drained = 0
        self._failed_starts = 0
        self._next_start = 0.0
        self._status = 0

    def stop(self) -> None:
        """Stop the children; called again, do not wait for running jobs. For signal handlers."""
        self._orders += 1
        self._inbox.put(None)

    def wake(self) -> None:
        """Look at the children now. For the handler of SIGCHLD."""
        self._inbox.put(None)

    def run(self) -> int:
        """Run until told to stop, or until all is drained; return the exit status."""
        try:
            while True:
                self._pass_orders_on()
                self._bury()
                if not self._children and not self._dead and self._finished:
                    return self._status
                self._start_missing()
                pause = min(_TICK, self._keep())
                with contextlib.suppress(Empty):
                    self._inbox.get(timeout=pause)
        finally:
            for child in self._children:
                child.process.kill()
            self._keeper.session.close()

    @property
    def _finished(self) -> bool:
        return self._orders > 0 or self._drained >= self._processes

    # ------------------------------------------------------------------------------ children

    def _start_missing(self) -> None:
        staying = [child for child in self._children if not child.board.leaving]
        missing = self._processes - self._drained - len(staying)
        if self._finished or missing <= 0 or time.monotonic() < self._next_start:
            return
        for _ in range(missing):
            self._children.append(self._start())

    def _start(self) -> Child:
        """Start one child by exec: a fork would share this process's connections and threads."""
        board = Board.create(self._options.most_held)
        read, write = os.pipe()
        try:
            descriptors = (board.descriptor, read)
            process = subprocess.Popen(  # noqa: S603 -- this very command again
                [sys.executable, *sys.orig_argv[1:]],
                env={**os.environ, CHILD: ",".join(map(str, descriptors))},
                pass_fds=descriptors,
            )
        finally:
            os.close(read)
        return Child(process, os.fdopen(write, "w"), board, resources.oom_kills())

    def _register(self) -> None:
        """Enter new children in the table of workers; each waits to be told its id."""
        options = self._options
        for child in self._children:
            if child.lease is None:
                child.lease = Lease.register(
                    self._keeper.session.execute,
                    child.board,
                    pid=child.process.pid,
                    queues=options.queues,
                    threads=options.threads,
                )
                child.order(f"{child.lease.worker} {child.lease.name}")

    def _keep(self) -> float:
        """Do the duties; return the seconds until more is due."""
        try:
            self._register()
            self._record_deaths()
        except CONNECTION_ERRORS as error:
            logger.warning("The supervisor cannot reach the database, trying again: %s", error)
        kept = {child.lease: child for child in self._children if child.lease is not None}
        lost, pause = self._keeper.keep(list(kept), stopping=self._orders > 0)
        for lease in lost:
            logger.critical("The worker %s was taken for dead and is killed.", lease.name)
            kept[lease].death = "taken for dead"
            kept[lease].process.kill()
        self._kill_silent()
        return pause

    def _kill_silent(self) -> None:
        now = time.monotonic()
        for child in self._children:
            if now - child.board.answered > SILENCE * conf.get().lease:
                child.death = "no sign of life"
            elif now > child.kill_by:
                child.death = "still busy at the end of the shutdown timeout"
            else:
                continue
            child.process.kill()

    def _pass_orders_on(self) -> None:
        orders = self._orders
        for _ in range(self._obeyed, orders):
            for child in self._children:
                child.order("stop")
                hurry = child.kill_by < math.inf
                wait = 0.0 if hurry else self._options.shutdown_timeout
                child.kill_by = time.monotonic() + wait + GRACE
        self._obeyed = orders

    # -------------------------------------------------------------------------------- deaths

    def _bury(self) -> None:
        """Take note of the children that have exited."""
        for child in [child for child in self._children if child.process.poll() is not None]:
            self._children.remove(child)
            self._dead.append(child)
            child.orders.close()
            child.death = child.death or self._cause(child)
            self._judge(child)

    def _judge(self, child: Child) -> None:
        """Decide what follows from the exit of a child."""
        name = child.lease.name if child.lease else f"process {child.process.pid}"
        code = child.process.returncode
        if code == 0 and not child.board.leaving and not self._orders:
            if self._options.drain:
                self._drained += 1
            else:  # one of its handlers raised KeyboardInterrupt
                self.stop()
        elif code != 0:
            logger.error("Worker %s died: %s.", name, child.death)
            self._status = 1 if self._orders else self._status
            self._failed_starts = 0 if child.started_well else self._failed_starts + 1
            backoff = min(_FIRST_BACKOFF * 2**self._failed_starts, _LONGEST_BACKOFF)
            self._next_start = time.monotonic() + (backoff if self._failed_starts else 0.0)
            if self._failed_starts >= _FAILED_STARTS:
                logger.critical("No worker can be started: giving up.")
                self._status = 1
                self.stop()

    def _cause(self, child: Child) -> str:
        code = child.process.returncode
        if code >= 0:
            return "stopped" if code == 0 else f"exited with status {code}"
        kills = resources.oom_kills()
        if code == -signal.SIGKILL and kills is not None and kills > (child.oom_kills or 0):
            return "killed for want of memory"
        return f"signal {-code}"

    def _record_deaths(self) -> None:
        """Record each death and what had started; the reaper does the rest, in the same round."""
        while self._dead:
            child = self._dead[0]
            if child.lease is not None:
                child.lease.end(self._keeper.session.execute, child.death)
            child.board.close()
            self._dead.pop(0)
