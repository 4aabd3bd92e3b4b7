"""A queue that one thread empties at a time, waiting for so many seconds and no longer.

Not `SimpleQueue.get(timeout=)`: before Python 3.13 that waits for ever when a signal, or SIGCONT after
the process was stopped, interrupts it at a moment when the time is over.

Invariant: what was put in before a `take()` returns is taken by it or by the next one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Any thread puts in, one takes all there is."""

    def __init__(self) -> None:
        """Begin empty."""
        self._items: deque[T] = deque()
        self._least = 1  # so many are news
        self._news = threading.Lock()  # held while there is nothing new
        self._news.acquire()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Put one in. A signal handler may do so too: it interrupts none of these steps."""
        self._items.append(item)
        # Else what was put in before is not taken yet, or is not enough.
        if self._news.locked() and len(self._items) >= self._least:
            with suppress(RuntimeError):  # another one released it meanwhile
                self._news.release()

    def take(self, seconds: float | None = None, least: int = 1) -> list[T]:
        """Wait so long for the first, or for so many, for ever by default; take all there is, in order.

        Who waits for many is not woken by each of them.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        self._least = least
        while len(self._items) < least:  # a box with news and too few is one that was emptied since
            wait = -1.0 if deadline is None else deadline - time.monotonic()
            if deadline is not None and wait <= 0:
                break
            self._news.acquire(timeout=min(wait, threading.TIMEOUT_MAX))
        self._least = 1
        return [self._items.popleft() for _ in range(len(self._items))]
