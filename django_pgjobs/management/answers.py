"""What `pgjobs` answers: as text for people, and as data for programs.

Invariant: nothing that a row holds reaches the terminal as anything but printable text.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.utils import timezone

NOTHING_DONE = NOTHING_FOUND = FOUND = 1  # exit statuses beside 0
_WIDEST = 60  # characters of a cell
_NONE = "-"


class Answer(NamedTuple):
    """One answer, and the exit status that it means."""

    data: Any
    text: str
    status: int = 0

    def written(self, *, as_json: bool) -> str:
        """Return what is printed."""
        if not as_json:
            return self.text
        return json.dumps(self.data, indent=2, default=_jsonable)  # ASCII, for terminals too


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table: a line of headings and one for each row, numbers to the right."""
    cells = [[cell(value) for value in row] for row in rows]
    numeric = [all(_is_number(row[n]) for row in cells) for n in range(len(columns))]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    return "\n".join(
        "  ".join(
            value.rjust(width) if is_number else value.ljust(width)
            for value, width, is_number in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in ([column.upper() for column in columns], *cells)
    )


def record(fields: Mapping[str, Any]) -> str:
    """Return one row as lines of a name and a value; JSON is indented."""
    width = max(map(len, fields))
    return "\n".join(
        f"{name.ljust(width)}  {_value(value, width)}" for name, value in fields.items()
    )


def cell(value: Any) -> str:
    """Return a value as a short text on one line."""
    text = printable(_text(value))
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def printable(text: str) -> str:
    """Return text without what a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def span(seconds: float | None) -> str:
    """Return a number of seconds as people say it, such as 1:02:03."""
    return _NONE if seconds is None else str(datetime.timedelta(seconds=int(max(0.0, seconds))))


def _value(value: Any, indent: int) -> str:
    if isinstance(value, dict | list):
        text = json.dumps(value, indent=2, ensure_ascii=False, default=_jsonable)
    else:
        text = _text(value)
    lines = [printable(line) for line in text.split("\n")]
    return f"\n{' ' * (indent + 2)}".join(lines)


def _text(value: Any) -> str:
    if value is None or value == "":
        return _NONE
    return _shown(value) if isinstance(value, datetime.datetime) else str(value)


def _is_number(text: str) -> bool:
    return text == _NONE or text.rstrip("+").replace(",", "").replace(":", "").isdigit()


def _shown(moment: datetime.datetime) -> str:
    here = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return here.isoformat(sep=" ", timespec="seconds")


def _jsonable(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime.datetime) else str(value)
