"""Signals that ask a command to stop.

Invariant: the handlers that were there before are there again afterwards, so that a command called
from other code takes nothing away from it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def on_signals(stop: Callable[[], None], look: Callable[[], None] | None = None) -> Iterator[None]:
    """Call `stop` at each SIGTERM and SIGINT, `look` when a child process has ended.

    SIGHUP is a first SIGTERM and never a second one: a terminal that is closed may send it twice.
    Under nohup it stays ignored. In another thread than the main one, do nothing. Both functions run
    between two bytecodes of the main thread, so they must not take a lock.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def ask(received: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if received != signal.SIGHUP or not asked:
            asked = True
            stop()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, ask)
    if look is not None:
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: look())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
