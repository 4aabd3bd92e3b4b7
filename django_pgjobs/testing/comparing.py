"""In what a payload differs from what a test expects of it.

Invariant: what is shown of a payload is masked as everywhere, for the output of tests is kept too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from django_pgjobs import extensions, masking, payloads
from django_pgjobs.exceptions import InvalidPayload

_ABSENT = object()
_SHOWN = 200  # characters of a value
_Path = tuple[str | int, ...]


def differences(payload: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Say where a payload lacks what is expected of it; both are as they are stored."""
    return [_said(*found) for found in _unequal(payload, expected)]


def shown(payload: dict[str, Any]) -> str:
    """Show a payload, masked."""
    return _json(masking.masked(payload))


def _unequal(is_: Any, expected: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any, Any]]:
    """Give each place where they differ. Of an object only the expected names count."""
    has, wanted = _members(is_), _members(expected)
    if has is not None and wanted is not None:
        for key, value in wanted.items():
            yield from _unequal(has.get(key, _ABSENT), value, (*path, key))
    elif isinstance(is_, list) and isinstance(expected, list) and len(is_) == len(expected):
        for n, pair in enumerate(zip(is_, expected, strict=True)):
            yield from _unequal(*pair, (*path, n))
    elif not _are_equal(is_, expected):
        yield path, is_, expected


def _are_equal(is_: Any, expected: Any) -> bool:
    if _type_of(is_) == _type_of(expected) and _type_of(is_) in extensions.NAMES:
        with suppress(InvalidPayload):  # plain SQL may have stored what cannot be read
            return payloads.restored(is_) == payloads.restored(expected)
    # True is 1 in Python, and not in JSON.
    return bool(is_ == expected) and isinstance(is_, bool) == isinstance(expected, bool)


def _members(stored: Any) -> dict[str, Any] | None:
    """Return what a dict was stored with; None for whatever was none."""
    kind = _type_of(stored)
    if kind == "dict" or (kind is None and isinstance(stored, dict)):
        members = stored if kind is None else stored["value"]
        return members if isinstance(members, dict) else None
    return None


def _type_of(stored: Any) -> str | None:
    """Return the type of what JSON does not know."""
    tagged = isinstance(stored, dict) and stored.keys() == {"$type", "value"}
    return str(stored["$type"]) if tagged else None


def _said(path: _Path, is_: Any, expected: Any) -> str:
    place = "payload" + "".join(f"[{key!r}]" for key in path)
    has, wanted = _at(path, is_), _at(path, expected)
    if has == wanted:  # masked, or cut
        return f"{place} is another one, though both are shown as {has}"
    return f"{place} is {has}, not {wanted}"


def _at(path: _Path, value: Any) -> str:
    """Show what a payload has at a place, or as much of it as is no secret."""
    if value is _ABSENT:
        return "absent"
    for key in reversed(path):
        value = {str(key): value}
    value = masking.masked(value)
    for key in path:
        if isinstance(value, dict):  # a mask stands for all below it
            value = value[str(key)]
    kind = _type_of(value)
    return _json(value) if kind is None else f"{kind} {_json(value['value'])}"


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
