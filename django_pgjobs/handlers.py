"""The handlers of a worker: sync ones in threads, async ones on an event loop.

Both work at the same time, and neither waits for the other. While both have room, jobs of any kind
are claimed, no more than the threads have room for; what is left of either's room is filled with
claims for its own kinds. So a sync job is never claimed in place of an async one, only to wait.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from django_pgjobs import registry
from django_pgjobs.attempts import Held, Inbox, News, Runner
from django_pgjobs.claims import Claim
from django_pgjobs.deadlines import Watch
from django_pgjobs.leases import Lease
from django_pgjobs.lines import Line
from django_pgjobs.loop import Loop
from django_pgjobs.threads import Threads
from django_pgjobs.transactions import Transactions
from django_pgjobs.worker_options import WorkerOptions


class Handlers:
    """Where claims are handed over, by the kind of their job, and come back from."""

    def __init__(self, lease: Lease, options: WorkerOptions, inbox: Inbox) -> None:
        """Start the threads; the loop starts with its first job."""
        self._lease = lease
        self._database = options.database
        self._watch = watch = Watch(options.ends)
        threads = options.threads if options.by_lease else 0
        self.threads = Threads(lease, threads, inbox, watch, options.database)
        self.loop = Loop(
            lease, options.async_concurrency, inbox, watch, connections=options.threads
        )
        self._runners: tuple[Runner, ...] = (self.threads, self.loop)
        self.transactions: Transactions | None = None
        if served := options.by_transaction:
            self.transactions = Transactions(lease, options, served, inbox, watch)
            self._runners = (*self._runners, self.transactions)
        kinds = registry.kinds()
        self._async_kinds = [kind for kind, job_type in kinds.items() if job_type.is_async]
        self._mixed = 0 < len(self._async_kinds) < len(kinds)
        self._share = 0.0  # of async jobs among those claimed, a moving average

    @property
    def room(self) -> int:
        """How many jobs of any kind to claim."""
        if not self._mixed:
            return self.loop.room if self._async_kinds else self.threads.room
        return int(min(self.threads.room, self.loop.room / max(self._share, 0.01)))

    @property
    def rooms(self) -> list[tuple[Runner, list[str], bool]]:
        """For claims of some kinds only: who has room, and the kinds that are (not) meant."""
        if not self._mixed:
            return []
        return [(self.loop, self._async_kinds, True), (self.threads, self._async_kinds, False)]

    def submit(self, claims: Sequence[Claim]) -> list[Held]:
        """Hand claims over, in this order, and return them as they are held from now on.

        Kinds without a handler go to the threads, which fail them.
        """
        take, database = self._lease.board.take, self._database
        held = [Held.of(claim, take(), database) for claim in claims]
        tasks = [one for one in held if _is_async(one)]
        self.threads.submit([one for one in held if not _is_async(one)] if tasks else held)
        self.loop.submit(tasks)
        if held:
            self._share = 0.9 * self._share + 0.1 * len(tasks) / len(held)
        return held

    def note(self, news: News) -> None:
        """Take note of what the pump found in its inbox."""
        (self.loop if _is_async(news.held) else self.threads).note(news)

    @property
    def listening(self) -> list[tuple[Held, Line]]:
        """What is running now and can be asked to stop. What is claimed by transaction is locked."""
        running = [*self.threads.running, *self.loop.running]
        return [(held, held.line) for held in running if held.line is not None]

    def ask(self, held: Held) -> None:
        """Ask one of these to stop."""
        (self.loop if _is_async(held) else self.threads).ask(held)

    def look(self, options: WorkerOptions, *, ending: bool) -> bool:
        """Have jobs looked for that are claimed by transaction, if it is time; say if none is due."""
        if self.transactions is None:
            return True
        if ending:
            self.transactions.hold_back()
        else:
            self.transactions.look(options.poll, at_once=options.drain)
        return self.transactions.drained

    @property
    def starts(self) -> int:
        """How many jobs have started."""
        return sum(runner.starts for runner in self._runners)

    @property
    def running(self) -> list[Held]:
        """What is running now."""
        return [held for runner in self._runners for held in runner.running]

    @property
    def stuck(self) -> list[Held]:
        """What is running now and cannot be stopped, though its time is over."""
        return [held for runner in self._runners for held in runner.stuck]

    def take_back(self) -> list[Held]:
        """Take back everything that has not started."""
        return [held for runner in self._runners for held in runner.take_back()]

    def take_back_stalled(self, patience: float) -> list[Held]:
        """Take back what waits where nothing has started for so long."""
        return [held for runner in self._runners for held in runner.take_back_stalled(patience)]

    def start_nothing(self) -> None:
        """Let nothing start any more; what runs goes on. Any thread may call it."""
        for runner in self._runners:
            runner.closed = True

    def close(self) -> None:
        """Start nothing more, and end after what is running."""
        for runner in self._runners:
            runner.close()
        self._watch.close()

    def join(self, seconds: float) -> None:
        """Wait so long, after a `close()`, for every thread whose handler is not stuck."""
        by = time.monotonic() + seconds
        threads = [thread for runner in self._runners for thread in runner.threads]
        for thread in [*threads, *self._watch.threads]:
            thread.join(max(0.0, by - time.monotonic()))


def _is_async(held: Held) -> bool:
    return held.job_type is not None and held.job_type.is_async
