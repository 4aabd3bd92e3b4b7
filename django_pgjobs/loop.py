"""The event loop of a worker, in a thread of its own, which runs async handlers concurrently.

Each job is a task with a context of its own (language, time zone, context variables). Tasks that its
handler started and left are cancelled with it.

Invariant: nothing that a handler raises ends the loop; a job has ended when all of its tasks have, and
all the calls that it made in other threads.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django_pgjobs import execution, lanes
from django_pgjobs.attempts import Held, Inbox, Runner
from django_pgjobs.deadlines import Deadline, Watch
from django_pgjobs.lanes import Calls, Lanes
from django_pgjobs.leases import Lease
from django_pgjobs.outcomes import Outcome

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _Attempt:
    """A job on the loop."""

    held: Held
    deadline: Deadline
    calls: Calls | None = None  # of other threads
    task: asyncio.Task[None] | None = None
    others: set[asyncio.Task[Any]] = field(default_factory=set)  # started by the handler
    told: bool = False  # the loop has passed the interruption on
    returned: bool = False  # the handler has, or has raised: what is left is to tidy up


_current: contextvars.ContextVar[_Attempt] = contextvars.ContextVar("pgjobs_attempt")


class Loop(Runner):
    """An event loop that runs up to `capacity` handlers at a time; its thread starts with the first."""

    def __init__(
        self, lease: Lease, capacity: int, inbox: Inbox, watch: Watch, connections: int
    ) -> None:
        """Prepare; sync calls of the handlers, such as the ORM's, get so many threads."""
        super().__init__(lease, capacity, inbox, watch)
        self._lanes = Lanes(min(connections, capacity))
        self._ready: deque[Held] = deque()
        self._running: dict[int, _Attempt] = {}  # by job; changed by the loop's thread alone
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def idle(self) -> bool:
        """Whether no claim waits for its turn."""
        return not self._ready

    @property
    def running(self) -> list[Held]:
        """What is running now."""
        return [attempt.held for attempt in list(self._running.values())]

    @property
    def stuck(self) -> list[Held]:
        """What goes on after its time. All, where one of them keeps the loop from going round."""
        attempts = list(self._running.values())
        stuck = [attempt for attempt in attempts if attempt.deadline.stuck]
        blocked = any(not attempt.told for attempt in stuck)
        return [attempt.held for attempt in (attempts if blocked else stuck)]

    def ask(self, held: Held) -> None:
        """Ask what runs here to stop: its task is cancelled."""
        super().ask(held)
        if self._loop:
            self._loop.call_soon_threadsafe(self._cancel_asked, held)

    @property
    def threads(self) -> list[threading.Thread]:
        """The loop's and those of its lanes, unless a handler is stuck."""
        return [] if self._thread is None or self.stuck else [self._thread, *self._lanes.threads]

    def close(self) -> None:
        """Start nothing more, cancel what is running, and end with it."""
        self.closed = True
        if self._loop:
            self._loop.call_soon_threadsafe(self._cancel_all)

    def _put(self, held: Sequence[Held]) -> None:
        if not held:
            return
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_task_factory(_make_task)
            lanes.make_default(self._loop)
            arguments = (self._loop,)
            self._thread = threading.Thread(
                target=self._run, args=arguments, name="pgjobs-loop", daemon=True
            )
            self._thread.start()
        self._ready.extend(held)
        self._loop.call_soon_threadsafe(self._start_ready)

    def _take(self) -> list[Held]:
        unstarted = []
        while self._ready:
            try:
                unstarted.append(self._ready.popleft())
            except IndexError:  # the loop's thread took the last one
                break
        return unstarted

    # ------------------------------------------------------------------- on the loop's own thread

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not self.closed or self._running:
            try:
                loop.run_forever()
            # A task that a handler started raised SystemExit, say. It has failed; the others go on.
            except BaseException:
                logger.exception("A task of an async handler tried to end the event loop.")
        self._lanes.close()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def _start_ready(self) -> None:
        with self._or_end_the_worker():
            while self._ready and len(self._running) < self.capacity:
                try:
                    held = self._ready.popleft()
                except IndexError:  # the pump took the last one back
                    break
                if self._may_start():
                    self._start(held)
                else:
                    self._end(held, None, time.perf_counter())

    def _start(self, held: Held) -> None:
        loop = asyncio.get_running_loop()
        attempt = _Attempt(held, self._begin(held))
        self._running[held.claim.id] = attempt
        context = contextvars.Context()
        context.run(_current.set, attempt)
        attempt.task = loop.create_task(self._work(attempt), context=context)
        if attempt.deadline.seconds is not None:
            attempt.deadline.on_time(
                partial(loop.call_soon_threadsafe, _cancel, attempt),
                _nothing,  # cancelling a task that has ended does nothing
                partial(self._mark_stuck, held),
            )

    async def _work(self, attempt: _Attempt) -> None:
        began = time.perf_counter()
        attempt.calls = self._lanes.enter()
        held = attempt.held
        try:
            outcome = await execution.arun(
                held.claim,
                self._lease.name,
                attempt.deadline,
                partial(_end_others, attempt),
                held.line,
            )
        # A cancellation may arrive after the handler has returned. The job must end all the same.
        except BaseException as error:  # noqa: BLE001
            outcome = execution.failed(held.claim, error, self._lease.name)
        with self._or_end_the_worker():
            attempt.calls.leave()
            self._finish(attempt, outcome, began)

    def _finish(self, attempt: _Attempt, outcome: Outcome, began: float) -> None:
        del self._running[attempt.held.claim.id]
        self._end(attempt.held, outcome, began)
        self._start_ready()
        if self.closed and not self._running:
            asyncio.get_running_loop().stop()

    def _cancel_asked(self, held: Held) -> None:
        attempt = self._running.get(held.claim.id)
        if attempt is None or attempt.held is not held or attempt.task is None:
            return  # it has ended meanwhile
        # One that is at its end, or was told already, must be left to tidy up.
        if not attempt.returned and not attempt.deadline.expired:
            attempt.task.cancel()

    def _cancel_all(self) -> None:
        for attempt in list(self._running.values()):
            if not attempt.deadline.expired:
                _cancel(attempt)
        if not self._running:
            asyncio.get_running_loop().stop()


def _make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    task = asyncio.Task(coroutine, loop=loop, **options)
    context: contextvars.Context = options.get("context") or contextvars.copy_context()
    attempt = context.get(_current)
    if attempt is not None and attempt.task is not None:
        attempt.others.add(task)
        task.add_done_callback(attempt.others.discard)
    return task


def _cancel(attempt: _Attempt) -> None:
    attempt.told = True
    if attempt.task:
        attempt.task.cancel()


async def _end_others(attempt: _Attempt) -> None:
    """Cancel the tasks that the handler left, and wait for them and for calls of other threads."""
    attempt.returned = True
    while attempt.others:
        for task in attempt.others:
            task.cancel()
        await asyncio.wait(attempt.others)
    if attempt.calls:
        await attempt.calls.end()


def _nothing() -> None:
    pass
