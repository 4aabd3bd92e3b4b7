"""Waiting in tests: for a fact, until a deadline, never for a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")

_PATIENCE = 3  # tests run beside each other, and on machines that have other things to do
_SHORTEST, _LONGEST = 0.005, 0.05  # seconds between two looks: who waits long looks less often


def eventually(fact: Callable[[], T], *, within: float = 10.0) -> T:
    """Ask again and again until `fact()` is truthy, and return it; else fail.

    `within` is how many seconds that takes at most where nothing else runs.
    """
    within *= _PATIENCE
    deadline = time.monotonic() + within
    pause = _SHORTEST
    while not (answer := fact()):
        if time.monotonic() > deadline:
            msg = f"{fact} must become true within {within} s, got {answer!r} to the end."
            raise AssertionError(msg)
        time.sleep(pause)
        pause = min(pause * 1.3, _LONGEST)
    return answer
