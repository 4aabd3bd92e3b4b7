"""All consumers of a process: what works beside the jobs of a worker, or alone.

Invariant: each consumer has a pump of its own, so that none waits for another; a notification only makes them
look earlier than they would.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

from django_pgjobs import conf
from django_pgjobs.companions import Companion
from django_pgjobs.listener import Listener
from django_pgjobs.pgmq import readiness
from django_pgjobs.pgmq.allowances import Allowance
from django_pgjobs.pgmq.consumers import Consumer
from django_pgjobs.pgmq.hands import Hands, Inbox, Loop, Threads
from django_pgjobs.pgmq.pumps import Pump
from django_pgjobs.sessions import Execute, Session
from django_pgjobs.worker_options import WorkerOptions

_LAST_WRITES = 1.0  # seconds to acknowledge what has ended and to give back what has not begun


class Crew(Companion):
    """The consumers of one process."""

    def __init__(self, consumers: Sequence[Consumer], options: WorkerOptions) -> None:
        """Prepare."""
        self._consumers = consumers
        self._options = options
        self._pumps: list[Pump] = []
        self._allowance = Allowance(options.max_jobs)
        self._stopping = False
        self._listeners: list[_QueueListener] = []

    def __str__(self) -> str:
        return f"messages of {', '.join(map(self._name, self._consumers))}"

    @property
    def busy(self) -> int:
        """How many consumers have messages in hand, or with `--drain` may find some."""
        return sum(pump.busy for pump in self._pumps)

    @property
    def failed(self) -> bool:
        """Whether a drain had to leave a queue alone."""
        return self._options.drain and any(pump.is_lost for pump in self._pumps)

    def demand(self) -> None:
        """Demand the queues, those of the dead letters, and the privileges that consuming takes.

        Raises:
            QueueMissing, PgmqMissing, PrivilegeMissing: the first that is missing.

        """
        with ExitStack() as sessions:

            def execute_on(alias: str) -> Execute:
                return sessions.enter_context(closing(Session(alias))).execute

            for fault in readiness.faults(self._consumers, execute_on):
                raise fault

    def start(self, wake: Callable[[], None]) -> None:
        """Begin to read."""
        self._pumps = [self._pump(consumer, wake) for consumer in self._consumers]
        if self._stopping:  # a signal came before the pumps were there
            self.stop()
        for pump in self._pumps:
            pump.start()
        if self._options.notify and not self._options.drain and not self._stopping:
            aliases = sorted({consumer.queue.alias for consumer in self._consumers})
            self._listeners = [self._listener(alias) for alias in aliases]

    def doubt(self) -> None:
        """Look again: a job that has ended may have sent messages."""
        if self._options.drain:
            for pump in self._pumps:
                pump.exhausted = False
                pump.look()

    def settle(self) -> tuple[int, int]:
        """Read nothing more before `allow()`; return how many messages were read, and how many are about to be."""
        return self._allowance.settle()

    def allow(self, number: int) -> None:
        """Let so many more messages be read."""
        if self._allowance.allow(number):
            self._look()

    def finish(self) -> None:
        """Read no more, and end after what is held."""
        for pump in self._pumps:
            pump.finish()

    def stop(self) -> None:
        """Read no more; give back what no handler has begun; end after the rest."""
        self._stopping = True
        for pump in self._pumps:
            pump.stop()

    def close(self) -> None:
        """End now; what is running is read again when its time is over."""
        self.stop()
        for listener in self._listeners:
            listener.close()
        leave_by = time.monotonic() + _LAST_WRITES
        for pump in self._pumps:
            pump.join(max(0.0, leave_by - time.monotonic()))

    def _name(self, consumer: Consumer) -> str:
        queue = consumer.queue
        where = "" if queue.alias == self._options.database else f" on {queue.alias!r}"
        return f"{queue.name}{where}"

    def _pump(self, consumer: Consumer, wake: Callable[[], None]) -> Pump:
        options, inbox = self._options, Inbox()
        hands: Hands
        if consumer.is_async:
            capacity = min(consumer.qty, options.async_concurrency)
            hands = Loop(consumer, capacity, inbox, options.threads)
        else:
            hands = Threads(consumer, min(consumer.qty, options.threads), inbox)
        return Pump(consumer, hands, inbox, options, self._allowance, wake)

    def _listener(self, alias: str) -> _QueueListener:
        # LISTEN_DATABASE bypasses a pooler before the database of the jobs, and leads nowhere else.
        listen = conf.get().listen_database if alias == self._options.database else None
        names = [c.queue.name for c in self._consumers if c.queue.alias == alias]
        return _QueueListener(listen or alias, alias, names, self._look)

    def _look(self) -> None:
        for pump in self._pumps:
            pump.look()


class _QueueListener(Listener):
    """Hears what pgmq says of inserts, where `Queue.enable_notify()` has asked it to."""

    def __init__(self, listen: str, alias: str, names: list[str], wake: Callable[[], None]) -> None:
        self.channels = [f"pgmq.q_{name}.INSERT" for name in names]
        super().__init__(listen, alias, lambda _: True, wake)

    def _is_for_us(self, channel: str, payload: str) -> bool:  # noqa: ARG002 -- as its base
        return channel in self.channels
