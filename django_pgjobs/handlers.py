"""The threads of a worker that run handlers.

Claims go in by the batch and are pulled by whichever thread is free; what becomes of them goes to
the worker's inbox. Nothing here speaks to the jobs' rows.

Invariant: a claim that came in leaves by the inbox or by `take_back()`, exactly once; the board
knows that it started before its handler does anything.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from django.db import connections

from django_pgjobs import execution
from django_pgjobs.claims import Claim
from django_pgjobs.leases import Lease
from django_pgjobs.outcomes import Outcome


class Held(NamedTuple):
    """A claim that this worker holds, and its slot on the board."""

    claim: Claim
    slot: int


class News(NamedTuple):
    """What a thread says of a claim: its outcome, or None where it was not started."""

    held: Held
    outcome: Outcome | None
    seconds: float


class Handlers:
    """A fixed number of threads, with one queue before them."""

    def __init__(self, lease: Lease, threads: int, inbox: SimpleQueue[News | None]) -> None:
        """Start the threads."""
        self._lease = lease
        self._inbox = inbox
        self._ready: SimpleQueue[Held | None] = SimpleQueue()
        self._running: dict[int, Held] = {}  # by thread
        self.starts = 0  # only ever compared with itself: a lost increment does no harm
        self.closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"pgjobs-handler-{n}", daemon=True)
            for n in range(1, threads + 1)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, held: Iterable[Held]) -> None:
        """Give claims to the threads, in this order."""
        for one in held:
            self._ready.put(one)

    @property
    def idle(self) -> bool:
        """Whether no claim waits for a thread."""
        return self._ready.empty()

    @property
    def running(self) -> list[Held]:
        """What is running now."""
        return list(self._running.values())

    def take_back(self) -> list[Held]:
        """Take the claims back that no thread has started."""
        unstarted = []
        try:
            while held := self._ready.get_nowait():
                unstarted.append(held)
        except Empty:
            pass
        return unstarted

    def close(self) -> None:
        """Start nothing more, and let each thread end after what it runs."""
        self.closed = True
        for _ in self._threads:
            self._ready.put(None)

    def _work(self) -> None:
        thread = threading.get_ident()
        try:
            while (held := self._ready.get()) is not None:
                began = time.perf_counter()
                outcome: Outcome | None = None
                if self._lease.safe and not self.closed:
                    self._lease.board.start(held.slot, held.claim.id)
                    self.starts += 1
                    self._running[thread] = held
                    outcome = self._execute(held.claim)
                self._running.pop(thread, None)
                self._inbox.put(News(held, outcome, time.perf_counter() - began))
        finally:
            connections.close_all()

    def _execute(self, claim: Claim) -> Outcome:
        try:
            return execution.run_in_thread(claim, self._lease.name)
        # Cleaning up after a job can fail too, with its connection for one. The thread must live.
        except BaseException as error:  # noqa: BLE001
            return execution.failed(claim, error, self._lease.name)
