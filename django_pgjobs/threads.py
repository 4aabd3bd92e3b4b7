"""The threads of a worker that run sync handlers, and claims that no handler fits.

Claims go in by the batch and are pulled by whichever thread is free.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from queue import Empty, SimpleQueue

from django.db import connections

from django_pgjobs import atomic, execution, leftovers
from django_pgjobs.attempts import Held, Inbox, Runner
from django_pgjobs.claims import Claim
from django_pgjobs.deadlines import Deadline, Watch, interrupt_thread, withdraw_from_thread
from django_pgjobs.execution import Attempt
from django_pgjobs.leases import Lease
from django_pgjobs.lines import Line
from django_pgjobs.outcomes import Outcome, Settled


class Threads(Runner):
    """A fixed number of threads, with one queue before them."""

    def __init__(
        self, lease: Lease, capacity: int, inbox: Inbox, watch: Watch, database: str
    ) -> None:
        """Start the threads; `database` is the alias of the jobs."""
        super().__init__(lease, capacity, inbox, watch)
        self._database = database
        self._ready: SimpleQueue[Held | None] = SimpleQueue()
        self._running: dict[int, tuple[Held, Deadline]] = {}  # by thread
        self._threads = [
            threading.Thread(target=self._work, name=f"pgjobs-handler-{n}", daemon=True)
            for n in range(1, capacity + 1)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def idle(self) -> bool:
        """Whether no claim waits for a thread."""
        return self._ready.empty()

    @property
    def running(self) -> list[Held]:
        """What is running now."""
        return [held for held, _ in list(self._running.values())]

    @property
    def stuck(self) -> list[Held]:
        """What did not stop when it was interrupted."""
        return [held for held, deadline in list(self._running.values()) if deadline.stuck]

    @property
    def threads(self) -> list[threading.Thread]:
        """Those whose handler is not stuck."""
        stuck = {thread for thread, (_, deadline) in list(self._running.items()) if deadline.stuck}
        return [thread for thread in self._threads if thread.ident not in stuck]

    def close(self) -> None:
        """Start nothing more, and let each thread end after what it runs."""
        self.closed = True
        for _ in self._threads:
            self._ready.put(None)

    def _put(self, held: Sequence[Held]) -> None:
        for one in held:
            self._ready.put(one)

    def _take(self) -> list[Held]:
        unstarted = []
        try:
            while held := self._ready.get_nowait():
                unstarted.append(held)
        except Empty:
            pass
        return unstarted

    def _work(self) -> None:
        with self._or_end_the_worker():
            self._run_all()
        connections.close_all()

    def _run_all(self) -> None:
        thread = threading.get_ident()
        leftovers.guard_thread()
        while (held := self._ready.get()) is not None:
            began = time.perf_counter()
            outcome: Outcome | Settled | None = None
            if self._may_start():
                deadline = self._begin(held)
                self._running[thread] = (held, deadline)
                if deadline.seconds is not None:
                    self._say_what_stops(deadline, held, thread)
                outcome = self._execute(held.claim, deadline, self._attempt_of(held))
            self._running.pop(thread, None)
            self._end(held, outcome, began)

    def _attempt_of(self, held: Held) -> Attempt:
        if held.job_type is not None and held.job_type.atomic:
            return partial(self._run_atomic, line=held.line)
        return execution.run if held.line is None else partial(execution.run, line=held.line)

    def _say_what_stops(self, deadline: Deadline, held: Held, thread: int) -> None:
        deadline.on_time(
            partial(interrupt_thread, thread),
            partial(withdraw_from_thread, thread),
            partial(self._mark_stuck, held),
        )

    def _execute(self, claim: Claim, deadline: Deadline, attempt: Attempt) -> Outcome | Settled:
        try:
            return execution.run_in_thread(claim, self._lease.name, deadline, attempt)
        # Cleaning up after a job can fail too, with its connection for one. The thread must live.
        except BaseException as error:  # noqa: BLE001
            return execution.failed(claim, error, self._lease.name)

    def _run_atomic(
        self, claim: Claim, _worker: str, deadline: Deadline, line: Line | None = None
    ) -> Outcome | Settled:
        return atomic.run(claim, self._lease, self._database, lambda: deadline, line=line)
