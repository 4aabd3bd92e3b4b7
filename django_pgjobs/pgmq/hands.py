"""Where the handler of a consumer runs: sync ones in threads, async ones on an event loop.

Invariant: what was put in comes out as `Ended`, or by `take_back()`, exactly once; nothing that a handler raises
or leaves behind gets further than that.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from django_pgjobs import lanes, leftovers, payloads
from django_pgjobs.atomic import let_django_commit
from django_pgjobs.exceptions import PgJobsError
from django_pgjobs.lanes import Lanes
from django_pgjobs.mailbox import Mailbox
from django_pgjobs.pgmq.acks import Acks, Held
from django_pgjobs.pgmq.consumers import Consumer
from django_pgjobs.pgmq.messages import read
from django_pgjobs.sessions import execute_on_django

logger = logging.getLogger(__name__)

_WORTH = 0.0002  # seconds of work that are worth a thread
_WORK, _END = "work", "end"  # what a thread is called for


class Late(PgJobsError):
    """A message was read by somebody else before its atomic handler had ended."""


class Ended(NamedTuple):
    """What became of a message: what its handler raised, and whether it is acknowledged already."""

    held: Held
    error: BaseException | None
    seconds: float
    acknowledged: bool = False


Inbox = Mailbox[Ended | None]


class Hands(Protocol):
    """Runs the handler, so many at a time."""

    capacity: int

    def put(self, held: Sequence[Held], seconds: float) -> None:
        """Take messages in, which are expected to take so long together."""

    def hurry(self) -> None:
        """Do not wait for those expected to be short: they take longer."""

    def take_back(self) -> list[Held]:
        """Return those whose handler has not begun."""

    def close(self) -> None:
        """Begin nothing more, and end after what is running."""


class Threads:
    """A fixed number of threads, with one line of messages before them.

    To wake a thread costs more than a short handler does. So no more are woken than the messages are worth; one
    that is awake takes all there are.
    """

    def __init__(self, consumer: Consumer, capacity: int, inbox: Inbox) -> None:
        """Start the threads."""
        self.capacity = capacity
        self._consumer = consumer
        self._inbox = inbox
        self._ready: deque[Held] = deque()
        self._calls: SimpleQueue[str] = SimpleQueue()  # each wakes a thread
        for number in range(1, capacity + 1):
            name = f"pgmq-{consumer.queue.name}-{number}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def put(self, held: Sequence[Held], seconds: float) -> None:
        """Take messages in."""
        self._ready.extend(held)
        self._call(1 + int(min(seconds, 1.0) / _WORTH))

    def hurry(self) -> None:
        """Wake a thread for each that waits."""
        self._call(self.capacity)

    def take_back(self) -> list[Held]:
        """Return those that no thread has taken."""
        return list(iter(self._next, None))

    def close(self) -> None:
        """Let each thread end after what it runs."""
        self._ready.clear()
        for _ in range(self.capacity):
            self._calls.put(_END)

    def _call(self, threads: int) -> None:
        # A call that nobody has heard yet finds these messages too, for they are in the line already.
        for _ in range(min(threads, self.capacity, len(self._ready)) - self._calls.qsize()):
            self._calls.put(_WORK)

    def _next(self) -> Held | None:
        try:
            return self._ready.popleft()
        except IndexError:
            return None

    def _work(self) -> None:
        leftovers.guard_thread()
        while self._calls.get() == _WORK:
            while (held := self._next()) is not None:
                self._inbox.put(self._run(held))
        connections.close_all()

    def _run(self, held: Held) -> Ended:
        process, began = os.getpid(), time.perf_counter()
        error: BaseException | None = None
        try:
            leftovers.check_before()
            handle = self._handle_atomically if self._consumer.atomic else self._handle
            contextvars.Context().run(handle, held)
        # SystemExit ends the handler, not the thread, and whatever else it raises is the message's too.
        except BaseException as raised:  # noqa: BLE001
            error = raised
        if os.getpid() != process:
            os._exit(1)  # a fork that the handler let return: these messages are not its own
        acknowledged = self._consumer.atomic and error is None
        try:
            left = leftovers.remove()
            if left and error is None:
                error = leftovers.TransactionLeftOpen.on(left)
        # Cleaning up can fail too, with its connection for one. The thread must live.
        except Exception as raised:  # noqa: BLE001
            error = error or raised
        error = None if acknowledged else error
        return Ended(held, error, time.perf_counter() - began, acknowledged)

    def _handle(self, held: Held) -> None:
        self._consumer.handler(read(held.text, plain=self._consumer.queue.plain))

    def _handle_atomically(self, held: Held) -> None:
        """Handle and acknowledge in one transaction; return only if that is committed."""
        alias = self._consumer.queue.alias
        committed: list[bool] = []
        let_django_commit(alias)
        try:
            with transaction.atomic(using=alias, durable=True):
                # The first hook of all: what a later one raises does not undo the commit.
                transaction.on_commit(lambda: committed.append(True), using=alias)
                self._handle(held)
                # It holds up itself alone, and the pump locks the message now and then.
                acks = Acks(self._consumer, execute_on_django(alias), waits=True)
                if not acks.acknowledge([held]):
                    raise Late(
                        "The message must be this worker's until its handler has ended, got one that "
                        "somebody else has read since: nothing that the handler wrote is kept."
                    )
        except BaseException:
            if not committed:
                raise
            text = "Message %s of %r is handled, but a function that it gave to on_commit() failed."
            logger.exception(text, held.id, self._consumer.queue.name)


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self, consumer: Consumer, capacity: int, inbox: Inbox, threads: int) -> None:
        """Start the thread; sync calls of the handlers, such as the ORM's, get so many threads."""
        self.capacity = capacity
        self._consumer = consumer
        self._inbox = inbox
        self._ready: deque[Held] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._lanes = Lanes(min(threads, capacity))
        self._loop = asyncio.new_event_loop()
        lanes.make_default(self._loop)
        name = f"pgmq-{consumer.queue.name}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def put(self, held: Sequence[Held], seconds: float) -> None:  # noqa: ARG002 -- one thread for all
        """Take messages in."""
        self._ready.extend(held)
        self._loop.call_soon_threadsafe(self._start_ready)

    def hurry(self) -> None:
        """Do nothing: all are begun at once."""

    def take_back(self) -> list[Held]:
        """Return those that have no task."""
        unstarted = []
        while self._ready:
            try:
                unstarted.append(self._ready.popleft())
            except IndexError:  # the loop's thread took the last one
                break
        return unstarted

    def close(self) -> None:
        """End after what is running."""
        self._closed = True
        self._loop.call_soon_threadsafe(self._stop_if_idle)

    # ------------------------------------------------------------------- on the loop's own thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closed or self._tasks:
            with suppress(BaseException):  # of a task that a handler left, and that nobody awaits
                self._loop.run_forever()
        self._lanes.close()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _start_ready(self) -> None:
        while self._ready:
            try:
                held = self._ready.popleft()
            except IndexError:  # the pump took the last one back
                break
            task = self._loop.create_task(self._work(held), context=contextvars.Context())
            self._tasks.add(task)
            task.add_done_callback(self._end)

    async def _work(self, held: Held) -> None:
        calls, began = self._lanes.enter(), time.perf_counter()
        error: BaseException | None = None
        try:
            text, plain = held.text, self._consumer.queue.plain
            asks = not plain and text is not None and payloads.names_instance(text)
            message = await sync_to_async(read)(text) if asks else read(text, plain=plain)
            await self._consumer.handler(message)
        # As in the threads. SystemExit and KeyboardInterrupt would also end the event loop.
        except BaseException as raised:  # noqa: BLE001
            error = raised
        await calls.end()
        calls.leave()
        self._inbox.put(Ended(held, error, time.perf_counter() - began))

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._stop_if_idle()

    def _stop_if_idle(self) -> None:
        if self._closed and not self._tasks:
            self._loop.stop()
