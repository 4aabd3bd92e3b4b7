"""Types of command-line arguments: each refuses what is out of range, saying what it takes.

Invariant: a wrong argument is a usage error, exit status 2, before anything is connected.
"""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Callable

from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.options import check_queue


def seconds(text: str) -> float:
    """Read a number of seconds above 0."""
    value = _number(text)
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"must be a number of seconds above 0, got {text!r}")
    return value


def seconds_or_none(text: str) -> float:
    """Read a number of seconds, 0 included."""
    value = _number(text)
    if not 0 <= value < math.inf:
        raise ArgumentTypeError(f"must be 0 or more seconds, got {text!r}")
    return value


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a reader of whole numbers in a range."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= most:
            raise ArgumentTypeError(f"must be a whole number from {least} to {most}, got {text!r}")
        return int(text)

    return read


def queues(text: str) -> list[str]:
    """Read names of queues with commas between them."""
    try:
        return [check_queue(name.strip()) for name in text.split(",")]
    except InvalidOption as error:
        raise ArgumentTypeError(str(error)) from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
