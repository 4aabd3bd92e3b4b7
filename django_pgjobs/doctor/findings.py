"""What a look of the doctor is, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple


class Severity(StrEnum):
    """How bad it is: an error loses or stops jobs, a warning slows them down or will be an error."""

    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Its place in the order, the worst last."""
        return list(Severity).index(self)


class Finding(NamedTuple):
    """What one look found."""

    check: str
    severity: Severity
    what: str
    do: str = ""


class Patient(NamedTuple):
    """The database of the jobs, and what to ask it with: a statement and its values by name."""

    alias: str
    ask: Callable[..., list[tuple[Any, ...]]]


Said = Iterator[tuple[Severity, str, str]]  # how bad, what, and what to do
Look = Callable[[Patient], Said]
