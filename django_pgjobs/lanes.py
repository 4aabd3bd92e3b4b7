"""The threads that serve the sync calls of async handlers: the async ORM is made of such calls.

Each thread, a lane, has Django connections of its own. A job takes the lane with the fewest jobs when
it makes its first call and stays there, so a server-side cursor finds its connection again; jobs that
share a lane take turns by the call.

Invariant: no call leaves a transaction open, so none can reach into another job's; there are never
more lanes, and connections to a database, than it was said.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from queue import SimpleQueue
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections

from django_pgjobs import leftovers

logger = logging.getLogger(__name__)

_MOST_OTHERS = 32  # threads for asyncio.to_thread() and its like


class Lanes:
    """A bounded number of threads; each starts when it is needed. The loop's thread owns it."""

    def __init__(self, most: int) -> None:
        """Allow so many lanes."""
        self._most = most
        self._lanes: list[_Lane] = []

    def enter(self) -> Calls:
        """Have the thread-sensitive calls of the current context served here, and return them."""
        calls = Calls(self)
        context = ThreadSensitiveContext()
        # As its `executor` argument does, which is too new to be relied on. A weak dictionary.
        SyncToAsync.context_to_thread_executor[context] = calls
        SyncToAsync.thread_sensitive_context.set(context)
        _current.set(calls)
        return calls

    def choose(self) -> _Lane:
        """Return the lane with the fewest jobs, a new one rather than a shared one."""
        lane = min(self._lanes, key=lambda lane: lane.jobs, default=None)
        if lane is None or (lane.jobs and len(self._lanes) < self._most):
            lane = _Lane(len(self._lanes) + 1)
            self._lanes.append(lane)
        return lane

    @property
    def threads(self) -> list[threading.Thread]:
        """Those of the lanes so far."""
        return [lane.thread for lane in self._lanes]

    def close(self) -> None:
        """Let each lane close its connections and end, after what it runs."""
        for lane in self._lanes:
            lane.put(None)


class Calls(Executor):
    """The calls of one job."""

    def __init__(self, lanes: Lanes) -> None:
        """Prepare; a job that makes no call costs no lane."""
        self._lanes = lanes
        self._lane: _Lane | None = None
        self._running: set[Future[Any]] = set()

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run `call` on this job's lane."""
        if self._lane is None:
            self._lane = self._lanes.choose()
            # Where others are at work, their cursors need the connection as it is.
            shared = self._lane.jobs > 0
            self._lane.put(leftovers.distrust if shared else leftovers.check_before)
            self._lane.jobs += 1
        future: Future[Any] = Future()
        self.note(future)
        self._lane.put(partial(_serve, future, partial(call, *args, **kwargs)))
        return future

    def note(self, future: Future[Any]) -> None:
        """Let the job end no sooner than this call."""
        self._running.add(future)
        future.add_done_callback(self._running.discard)

    async def end(self) -> None:
        """Wait for the calls that run still: one whose caller was cancelled goes on."""
        loop = asyncio.get_running_loop()
        for future in list(self._running):
            done = asyncio.Event()
            future.add_done_callback(lambda _, done=done: loop.call_soon_threadsafe(done.set))  # type: ignore[misc]
            await done.wait()

    def leave(self) -> None:
        """Make no further calls."""
        if self._lane is not None:
            self._lane.jobs -= 1
            if not self._lane.jobs:
                self._lane.put(leftovers.remove)
            self._lane = None


_current: ContextVar[Calls] = ContextVar("pgjobs_calls")


class _Lane:
    def __init__(self, number: int) -> None:
        self.jobs = 0
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self.put = self._calls.put
        self.thread = threading.Thread(
            target=self._work, name=f"pgjobs-async-{number}", daemon=True
        )
        self.thread.start()

    def _work(self) -> None:
        leftovers.guard_thread()
        try:
            while (call := self._calls.get()) is not None:
                try:
                    call()
                # Only the checks of connections end up here. The next ones may fare better.
                except Exception:
                    logger.exception("A connection of async handlers gave trouble.")
                del call  # it holds what the handler passed
        finally:
            connections.close_all()


def _serve(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
        if left := leftovers.roll_back():
            raise leftovers.TransactionLeftOpen.on(left)
    # SystemExit too is the job's, which awaits this call.
    except BaseException as error:  # noqa: BLE001
        leftovers.roll_back()
        future.set_exception(error)
    else:
        future.set_result(result)


def make_default(loop: asyncio.AbstractEventLoop) -> None:
    """Have `asyncio.to_thread()` and its like close the connections that a call has opened."""
    loop.set_default_executor(_Closing(_MOST_OTHERS, thread_name_prefix="pgjobs-to-thread"))


class _Closing(ThreadPoolExecutor):
    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(_call_and_close, call, *args, **kwargs)
        if calls := _current.get(None):
            calls.note(future)
        return future


def _call_and_close(call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    try:
        return call(*args, **kwargs)
    finally:
        connections.close_all()
