"""Make stored JSON fit to be shown: secrets masked, and what plain SQL has put there survived.

Invariant: no value under a key that looks secret, at any depth, is left as it is.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from django.utils.translation import gettext

from django_pgjobs import conf

MASK = "••••••"

_DEEPEST = (
    200  # containers inside one another: more than a payload of ours has, and a stack holds them
)
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')  # and texts, which may have some inside


def masked(value: object) -> object:
    """Return JSON data with the values under secret-looking keys replaced."""
    if isinstance(value, dict):
        return {key: MASK if is_secret(key) else masked(each) for key, each in value.items()}
    if isinstance(value, list):
        return [masked(each) for each in value]
    return value


def is_secret(key: object) -> bool:
    """Say whether a key looks as if its value were one."""
    return _pattern(conf.get().secret_keys).search(str(key)) is not None


def read(text: str | None) -> Any:
    """Return the JSON of a column as far as a page can show it: plain SQL may have stored anything."""
    if text is None:
        return None
    if _depth(text) > _DEEPEST:
        return gettext("Nested too deeply to be shown.")
    return json.loads(text, parse_int=_number)


def _depth(text: str) -> int:
    depth = deepest = 0
    for mark in _BRACKETS.findall(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(mark, 0)
        deepest = max(deepest, depth)
    return deepest


def _number(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:  # Python reads no more than 4,300
        return digits


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)
