"""What a process that a handler forks, by multiprocessing say, does not get from its worker.

Its connections are the worker's: a word from here, be it the one that closes them, would be part of the
worker's own stream. And a worker's ears are closed to signals that its supervisor answers.

Invariant: a fork begins with no connection of Django's, and ends at the signals that end a process.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from functools import cache
from typing import Any

from django.db import connections
from django.db.backends.postgresql.base import DatabaseWrapper

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

_left_alone: list[Any] = []  # what nobody refers to might be closed


@cache
def guard() -> None:
    """See to the forks of this process from now on."""
    os.register_at_fork(before=_hold_signals, after_in_parent=_let_signals, after_in_child=_part)


class _Thread(threading.local):
    mask: Iterable[int] = ()


_THREAD = _Thread()


def _hold_signals() -> None:
    """Let one that a fork is sent at once wait until it has the right handler."""
    _THREAD.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _let_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _THREAD.mask)


def _part() -> None:
    for connection in connections.all(initialized_only=True):
        _left_alone.append(connection)
        del connections[connection.alias]
    pools = DatabaseWrapper._connection_pools  # type: ignore[attr-defined] # noqa: SLF001 -- there is no other way to it
    _left_alone.append(dict(pools))
    pools.clear()
    for number in _SIGNALS:
        if _is_ours(signal.getsignal(number)):
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)
    _let_signals()


def _is_ours(handler: object) -> bool:
    return str(getattr(handler, "__module__", "")).startswith(f"{__package__}.")
