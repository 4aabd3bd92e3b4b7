"""Say why a value cannot be stored or read, and where in the payload it is.

Invariant: a message is short and runs no code of the value it speaks about: nothing is consumed,
evaluated or printed whole for it. A value under a key that looks secret is not shown.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

from django_pgjobs import masking

_SHOWN = 60  # characters of a value in a message
_PATH_HEAD, _PATH_TAIL = 130, 60
_PRINTABLE = {
    str,
    bytes,
    int,
    float,
    bool,
    type(None),
    date,
    datetime,
    time,
    timedelta,
    Decimal,
    UUID,
}


class RefusedError(Exception):
    """A value that cannot be stored or read. Its path is collected on the way out, not on the way in."""

    def __init__(self, expected: str, got: str, advice: str, what: str = "{path}") -> None:
        """Take the parts of the message; `what` says {root} where the path would say nothing."""
        self.expected, self.got, self.advice = expected, got, advice
        self.what = what
        self.steps: list[str] = []  # innermost first

    def pass_by(self, key: object) -> None:
        """Add the key or index of the container that the refusal leaves."""
        named = type(key) is str and len(key) <= _SHOWN and key.isidentifier()
        self.steps.append(f".{key}" if named else f"[{shown(key)}]")
        # What is not about the value there, as the size of all, is no secret.
        is_about_it = "{path}" in self.what and issubclass(type(key), str)
        if is_about_it and masking.is_secret(str.__str__(key)):
            self.got = masking.MASK

    def message(self, root: str) -> str:
        """Return the whole message about a value inside `root`."""
        path = root + "".join(reversed(self.steps))
        if len(path) > _PATH_HEAD + _PATH_TAIL:
            path = f"{path[:_PATH_HEAD]}…{path[-_PATH_TAIL:]}"
        return f"{self.what.format(path=path, root=root)} must be {self.expected}, got {self.got}. {self.advice}"


def shown(value: object, limit: int = _SHOWN) -> str:
    """Return a short text for a value: its beginning where it is a plain one, else only its type."""
    kind = type(value)
    if kind not in _PRINTABLE or getattr(value, "tzinfo", None) is not None:
        # The default repr, which no class can override. (A time zone's own repr may be anything.)
        text = object.__repr__(value).partition(" at 0x")[0].removeprefix("<")
        return f"<{text}>" if len(text) <= limit else f"<…{text[-limit:]}>"
    if kind is int and value.bit_length() > 4 * limit:  # type: ignore[attr-defined]
        return f"an int of {value.bit_length():,} bits"  # type: ignore[attr-defined]
    more = 0
    if kind is str or kind is bytes:
        more = max(len(value) - limit, 0)  # type: ignore[arg-type]
        value = value[:limit]  # type: ignore[index]
    text = repr(value)
    if len(text) > limit + 2:
        text = f"{text[:limit]}…"
    return f"{text} [{more:,} more]" if more else text
