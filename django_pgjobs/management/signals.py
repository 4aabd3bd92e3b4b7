"""Signals that ask a command to stop.

Invariant: the handlers that were there before are there again afterwards, so that a command called
from other code takes nothing away from it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at each SIGTERM, SIGINT and SIGHUP. In another thread than the main one, do nothing.

    `stop` runs between two bytecodes of the main thread, so it must not take a lock.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.signal(number, lambda *_: stop()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
