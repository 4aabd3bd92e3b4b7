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
def on_signals(stop: Callable[[], None], look: Callable[[], None] | None = None) -> Iterator[None]:
    """Call `stop` at each SIGTERM and SIGINT, `look` when a child process has ended.

    In another thread than the main one, do nothing. Both run between two bytecodes of the main
    thread, so they must not take a lock.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    calls = {signal.SIGTERM: stop, signal.SIGINT: stop}
    if look is not None:
        calls[signal.SIGCHLD] = look
    before = {number: signal.getsignal(number) for number in calls}
    for number in calls:
        signal.signal(number, lambda received, _frame: calls[signal.Signals(received)]())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
