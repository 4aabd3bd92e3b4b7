"""A worker's lease on what it claimed: registered once, renewed by heartbeats, ended by a fact.

Invariant: a lease ends when `died_at` is written, by whoever sees that the heartbeats stopped. A
worker that cannot be sure of its lease starts nothing, and one that is dead never lives again.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence

from django_pgjobs import conf, statements
from django_pgjobs.exceptions import WorkerDead
from django_pgjobs.sessions import Execute


class Lease:
    """The row of this worker in the table of workers, and how fresh it is."""

    def __init__(self, execute: Execute, *, queues: Sequence[str] | None, threads: int) -> None:
        """Register this start of a worker process; raise what the database raises."""
        self._acknowledged = time.monotonic()
        host, pid = socket.gethostname()[:255], os.getpid()
        params = {"host": host, "pid": pid, "queues": json.dumps(queues), "threads": threads}
        [(self.worker,)] = execute(statements.REGISTER, params)
        self.name = f"{host}:{pid} #{self.worker}"

    @property
    def safe(self) -> bool:
        """Whether a job may start now: nobody can have taken this lease for lost yet."""
        settings = conf.get()
        return time.monotonic() - self._acknowledged < settings.lease - settings.heartbeat

    def beat(self, execute: Execute, *, stopping: bool) -> None:
        """Renew the lease.

        Raises:
            WorkerDead: the death of this worker is recorded.

        """
        sent = time.monotonic()  # before the database's clock is read, so never too optimistic
        if not execute(statements.HEARTBEAT, {"worker": self.worker, "stopping": stopping}):
            raise WorkerDead(f"The worker {self.name} was taken for dead and must stop.")
        self._acknowledged = sent

    def sign_off(self, execute: Execute, death: str) -> None:
        """End the lease: what this worker still holds, if anything, is lost at once."""
        execute(statements.SIGN_OFF, {"worker": self.worker, "death": death})
