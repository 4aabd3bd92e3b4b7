"""The time that an attempt may take: told to stop at its end, and given up when it does not.

Invariant: an interruption reaches the attempt that it is meant for or none. It is sent under the lock
that the attempt takes to end, at most once, and what was sent but has not arrived is withdrawn there.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable
from typing import Self

from django_pgjobs.exceptions import Interrupted, JobTimeout
from django_pgjobs.mailbox import Mailbox

GRACE = 1.0  # seconds to clean up in, once told to stop; then the attempt counts as stuck


class Deadline:
    """When one attempt must end. As a context it surrounds the handler, and is minded meanwhile."""

    def __init__(
        self,
        seconds: float | None,
        watch: Watch | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Count from now on; None is no deadline. Whatever else minds it is told by `on_end`.

        The end of all that is watched comes for this one too, if it is earlier.
        """
        self._own = seconds  # what its kind says
        left = math.inf if watch is None else watch.ends - time.monotonic()
        if left < (math.inf if seconds is None else seconds):
            self._own, seconds = None, max(0.0, left)
        self.seconds = seconds
        self.at = math.inf if seconds is None else time.monotonic() + seconds
        self.next = self.at  # when the watch looks again
        self.expired = False  # it was told to stop
        self.stuck = False  # and goes on all the same
        self.ended = False
        self._watch = watch
        self._on_end = on_end
        self._lock = threading.Lock()
        self._interrupt: Callable[[], object] = _nothing
        self._withdraw: Callable[[], None] = _nothing
        self._on_stuck: Callable[[], None] = _nothing

    def on_time(
        self,
        interrupt: Callable[[], object],
        withdraw: Callable[[], None],
        on_stuck: Callable[[], None],
    ) -> None:
        """Say what stops the attempt, what takes that back, and whom it concerns if it is stuck."""
        self._interrupt, self._withdraw, self._on_stuck = interrupt, withdraw, on_stuck

    def __enter__(self) -> Self:
        if self._watch:
            self._watch.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._watch:
            with self._lock:
                self.ended, self.stuck = True, False
                if self.expired:
                    self._withdraw()
            self._watch.remove(self)

    def verdict(self, error: BaseException | None) -> BaseException | None:
        """Return what the attempt failed of, if it did; `error` is what left the handler.

        An attempt that was told to stop has failed, whatever it returned or raised since.
        """
        if self._watch:
            # Where the interruption arrived inside __exit__, this is not noted yet.
            self.ended, self.stuck = True, False
            self._watch.remove(self)
            self._on_end()  # what comes now, such as a commit, has no time limit
        if not self.expired:
            return error
        timeout = JobTimeout.after(self._own)
        timeout.__cause__ = error
        return timeout

    def pass_by(self) -> None:
        """Do what its time asks for, if the attempt still runs: interrupt it, or give it up."""
        with self._lock:
            if self.ended or self.stuck:
                self.next = math.inf
            elif self.expired:
                self.next, self.stuck = math.inf, True
                self._on_stuck()
            else:
                self.next, self.expired = time.monotonic() + GRACE, True
                self._interrupt()


class Watch:
    """A thread that minds deadlines, from the first one on. Attempts without one never meet it."""

    def __init__(self, ends: float = math.inf) -> None:
        """Prepare; the thread starts with the first deadline. All that is watched `ends` then."""
        self.ends = ends  # by the monotonic clock
        self._lock = threading.Lock()
        self._minded: dict[Deadline, None] = {}
        self._wake = math.inf  # when the thread looks next
        self._earlier: Mailbox[str] = Mailbox()
        self._thread: threading.Thread | None = None

    def add(self, deadline: Deadline) -> None:
        """Mind this one too. Any thread may call it."""
        with self._lock:
            self._minded[deadline] = None
            sooner = deadline.next < self._wake
            self._wake = min(self._wake, deadline.next)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="pgjobs-deadlines", daemon=True
                )
                self._thread.start()
        if sooner:
            self._earlier.put("sooner")

    def remove(self, deadline: Deadline) -> None:
        """Mind it no more."""
        self._minded.pop(deadline, None)

    def close(self) -> None:
        """End the thread; what is left is minded no more."""
        self._earlier.put("end")

    @property
    def threads(self) -> list[threading.Thread]:
        """The thread, if it has started."""
        return [] if self._thread is None else [self._thread]

    def _run(self) -> None:
        while True:
            now = time.monotonic()
            for deadline in list(self._minded):
                if deadline.next <= now:
                    deadline.pass_by()
            with self._lock:
                self._wake = min((each.next for each in list(self._minded)), default=math.inf)
                wait = self._wake - time.monotonic()
            if "end" in self._earlier.take(None if wait == math.inf else wait):
                return


_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc


def interrupt_thread(thread: int) -> None:
    """Have `Interrupted` raised in a thread, as soon as it runs Python code again."""
    _set_async_exc(ctypes.c_ulong(thread), ctypes.py_object(Interrupted))


def withdraw_from_thread(thread: int) -> None:
    """Take an interruption back that has not been raised yet."""
    _set_async_exc(ctypes.c_ulong(thread), None)


def _nothing() -> None:
    pass
