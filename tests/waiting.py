"""Waiting in tests: for a fact, until a deadline, never for a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")


def eventually(fact: Callable[[], T], *, within: float = 10.0) -> T:
    """Ask again and again until `fact()` is truthy, and return it; fail after `within` seconds."""
    deadline = time.monotonic() + within
    while not (answer := fact()):
        if time.monotonic() > deadline:
            msg = f"{fact} must become true within {within} s, got {answer!r} to the end."
            raise AssertionError(msg)
        time.sleep(0.02)
    return answer
