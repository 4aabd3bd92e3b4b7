"""Types of command-line arguments: each refuses what is out of range, saying what it takes.

Invariant: a wrong argument is a usage error, exit status 2, before anything is connected.
"""

from __future__ import annotations

import math
from argparse import ArgumentTypeError

from django.db import connections

from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.options import check_queue

LONGEST = 30 * 86_400  # seconds


def seconds(text: str) -> float:
    """Read a number of seconds above 0."""
    value = _number(text)
    if not 0 < value <= LONGEST:
        raise ArgumentTypeError(f"must be above 0 and up to {LONGEST} seconds, got {text!r}")
    return value


def seconds_or_none(text: str) -> float:
    """Read a number of seconds, 0 included."""
    value = _number(text)
    if not 0 <= value <= LONGEST:
        raise ArgumentTypeError(f"must be from 0 to {LONGEST} seconds, got {text!r}")
    return value


def database(text: str) -> str:
    """Read the alias of a PostgreSQL database."""
    if text not in connections or connections[text].vendor != "postgresql":
        known = [alias for alias in connections if connections[alias].vendor == "postgresql"]
        raise ArgumentTypeError(
            f"must be the alias of a PostgreSQL database ({', '.join(known)}), got {text!r}"
        )
    return text


def threads(text: str) -> int:
    """Read a number of threads."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1_000:  # noqa: PLR2004
        raise ArgumentTypeError(f"must be a whole number from 1 to 1000, got {text!r}")
    return int(text)


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
