"""One worker process as its supervisor knows it: started by exec, told by a pipe, dead for a reason.

Invariant: a child has no descriptor of its supervisor but its board and the reading end of its orders,
so the supervisor's end, however sudden, ends the orders; and none of the signals that ask to stop
reaches it before it can leave them to the supervisor.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from io import FileIO

from django_pgjobs import deadlines, execution, outcomes, registry, statements
from django_pgjobs.board import Board
from django_pgjobs.charges import Charges
from django_pgjobs.claims import Claim
from django_pgjobs.exceptions import JobTimeout
from django_pgjobs.leases import Lease
from django_pgjobs.resources import MemoryKills
from django_pgjobs.sessions import Execute

CHILD = "PGJOBS_CHILD"  # makes runjobs a child: the descriptors of its board and of its orders
# A terminal and systemd send these to every process of a group: only the supervisor obeys.
ASK_TO_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPPED = "stopped"
NOTICE = 3.0  # seconds in which a process that runs Python code notices that a time is over


@dataclass(eq=False)
class Child:
    """One worker process, from its start until its death is recorded."""

    process: subprocess.Popen[bytes]
    orders: FileIO  # the writing end of a pipe
    board: Board
    born: float
    lease: Lease | None = None  # until the database answers
    told: float = math.inf  # when it was told which worker it is
    death: str = ""
    kill_by: float = math.inf
    charges: Charges[None] | None = None  # from its death on: what it ran in transactions
    lock: threading.Lock = field(default_factory=threading.Lock)  # around the use of `orders`

    @classmethod
    def start(cls, claims: int) -> Child:
        """Start one by exec, for so many claims: a fork would share connections and threads.

        Raises:
            OSError: the system gives no descriptors, processes or memory.

        """
        board = Board.create(claims)
        read, write = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ASK_TO_STOP)  # a child inherits the mask
        try:
            descriptors = (board.descriptor, read)
            process = subprocess.Popen(  # noqa: S603 -- this very command again
                [sys.executable, *sys.orig_argv[1:]],
                env={**os.environ, CHILD: ",".join(map(str, descriptors))},
                pass_fds=descriptors,
            )
        except OSError:
            os.close(write)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(read)
            board.close()
        os.set_blocking(write, False)  # one that reads nothing must not stop its supervisor
        return cls(process, FileIO(write, "w"), board, born=time.monotonic())

    def order(self, line: str) -> None:
        """Send one line. A child that is gone needs none, nor one that reads none."""
        with self.lock, contextlib.suppress(OSError):
            if not self.orders.closed:
                self.orders.write(f"{line}\n".encode())

    def introduce(self, lease: Lease) -> None:
        """Tell the child which worker it is; it waits for this before it does anything."""
        self.lease = lease
        self.order(f"{lease.worker} {lease.name}")
        self.told = time.monotonic()

    def kill(self, reason: str) -> None:
        """End it at once, also where a handler holds the GIL."""
        self.death = self.death or reason
        self.process.kill()

    def time_out(self) -> None:
        """Kill it if a handler's time is over and it takes no notice: that handler holds the GIL."""
        slots = self.board.overdue(time.monotonic() - deadlines.GRACE - NOTICE)
        for slot in slots:
            self.board.time_out(slot)
        if slots:
            self.kill("a handler held the interpreter beyond its timeout")

    def record_death(self, execute: Execute) -> None:
        """Record what did not stop at its timeout, then the death; the reaper does the rest.

        Only here, after the process, are those handlers known to have ended.
        """
        if self.lease is None:
            return
        if self.charges is None:
            self.charges = Charges(self.lease.worker)
            for token in self.board.in_transactions:
                self.charges.add(token, None)
        self.charge(execute)
        self.lease.end(execute, self.death)

    def charge(self, execute: Execute) -> bool:
        """Retake what it ran in transactions, as far as the server lets go of them; say if any was.

        To be called until `charges` is empty. The reaper then counts it as all else that was lost.
        """
        if self.lease is None or self.charges is None:
            return False
        retaken, _ = self.charges.retake(execute)
        self._settle_timed_out(execute, self.lease)
        return bool(retaken)

    def _settle_timed_out(self, execute: Execute, lease: Lease) -> None:
        params = {"worker": lease.worker, "ids": self.board.timed_out}
        rows = execute(statements.HELD, params) if params["ids"] else []
        failures = []
        for claim in (Claim(*row) for row in rows):
            job_type = registry.find(claim.kind)
            error = JobTimeout.after(job_type.timeout if job_type else None)
            failures.append(execution.failed(claim, error, lease.name))
        outcomes.settle(execute, lease.worker, failures)

    def bury(self, memory_kills: MemoryKills) -> bool:
        """Say whether it has exited, and note of what it died."""
        code = self.process.poll()
        if code is None:
            return False
        with self.lock:  # the next pipe may get this descriptor, and must not get these orders
            self.orders.close()
        self.death = self.death or self._cause(code, memory_kills)
        return True

    def _cause(self, code: int, memory_kills: MemoryKills) -> str:
        if self.board.timed_out:
            return "a handler did not stop at its timeout"
        if code == -signal.SIGKILL and memory_kills.take():
            return "killed for want of memory"
        if code >= 0:
            # One that has drained what it could exits with 1 where that was not all.
            in_order = code <= 1 and self.board.finished
            return STOPPED if in_order else f"exited with status {code}"
        return f"signal {-code}"

    @property
    def name(self) -> str:
        """How logs call it."""
        return self.lease.name if self.lease else f"process {self.process.pid}"

    @property
    def started_well(self) -> bool:
        """Whether it has gone round at least once: what it needs to work is there."""
        return self.board.answered > 0

    @property
    def heard(self) -> float:
        """When it last gave a sign of life, as far as it had to give any."""
        return max(self.board.answered, self.told)
