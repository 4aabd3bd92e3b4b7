"""Types of command-line arguments: each refuses what is out of range, saying what it takes.

Invariant: a wrong argument is a usage error, exit status 2, before anything is connected.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.core.management.base import CommandError
from django.db import connections, router

from django_pgjobs import roles
from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.options import check_queue
from django_pgjobs.windows import WINDOW

LONGEST = 30 * 86_400  # seconds
LARGEST_ID = 2**63 - 1


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


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a reader of whole numbers in a range."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= most:
            raise ArgumentTypeError(f"must be a whole number from {least} to {most}, got {text!r}")
        return int(text)

    return read


def jobs_database(alias: str | None) -> str:
    """Return the database of the jobs: `alias`, or else the one that the routers give.

    Raises:
        CommandError: it is not a PostgreSQL of this project.

    """
    from django_pgjobs.models import Job  # noqa: PLC0415 -- a project may have pgmq alone

    return database(alias or router.db_for_write(Job))


def database(chosen: str) -> str:
    """Return an alias, or raise `CommandError` where it is of no PostgreSQL of this project."""
    if chosen not in connections or connections[chosen].vendor != "postgresql":
        known = [name for name in connections if connections[name].vendor == "postgresql"]
        raise CommandError(
            f"--database must be the alias of a PostgreSQL database, got {chosen!r}. "
            f"This project has {', '.join(known) or 'none'}.",
            returncode=2,
        )
    return chosen


def ids(text: str) -> list[int]:
    """Read ids of messages with commas between them; one that is named twice counts once."""
    read = whole(1, LARGEST_ID)
    return list(dict.fromkeys(read(part.strip()) for part in text.split(",")))


def queues(text: str) -> list[str]:
    """Read names of queues with commas between them; one that is named twice counts once."""
    try:
        return list(dict.fromkeys(check_queue(name.strip()) for name in text.split(",")))
    except InvalidOption as error:
        raise ArgumentTypeError(str(error)) from None


def storable(text: str) -> str:
    """Read a text that PostgreSQL can store: a shell may hand over any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArgumentTypeError(f"must be UTF-8, got {text!r}") from None
    return text


def chosen(text: str) -> str:
    """Read the value of a filter. One that is empty, as a variable of a shell may be, must not mean all."""
    if not text:
        raise ArgumentTypeError("must not be empty: leave the option out to choose all")
    return storable(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def add_limit(parser: ArgumentParser) -> None:
    """Declare how many rows a list shows."""
    parser.add_argument(
        "--limit",
        type=whole(1, WINDOW),
        default=50,
        metavar="N",
        help="how many at most (default 50)",
    )


def add_roles(parser: ArgumentParser, parts: Mapping[str, str]) -> None:
    """Declare an option for each part that a role may have, which says what such a role is to do."""
    for part, what in parts.items():
        parser.add_argument(
            f"--{part}",
            type=chosen,
            action="append",
            metavar="ROLE",
            help=f"a role that is to {what}; may be given again",
        )


def roles_of(options: Mapping[str, Any], parts: Iterable[str]) -> dict[str, list[str]]:
    """Return the names that were given to the options of `add_roles()`; a usage error without any."""
    try:
        return roles.check_roles({part: options[part] for part in parts})
    except InvalidOption as error:
        raise CommandError(str(error), returncode=2) from None
