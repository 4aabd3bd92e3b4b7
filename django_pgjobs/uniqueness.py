"""Which jobs are one: `Unique`, the rule of a kind, and the key that it makes of a payload.

Invariant: equal payloads give equal keys, whatever the order of their parts, and unequal ones never
do. A key begins with how long it is held; the moves of `lifecycle` read that, and clear it.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from django_pgjobs import payloads
from django_pgjobs.exceptions import InvalidOption, InvalidPayload
from django_pgjobs.refusals import shown
from django_pgjobs.texts import is_storable

START, FINISHED, PERIOD = "start", "finished", "period"
CONFLICTS = ("skip", "replace", "raise")

LONGEST_PERIOD = 100 * 365.25 * 86_400  # seconds

_KIND_SHOWN = 50  # characters of the kind in a key, for people
Key = str | Iterable[str] | Callable[[Mapping[str, Any]], object] | None


@dataclass(frozen=True)
class Unique:
    """The rule by which jobs of one kind are one.

    Args:
        key: what must be equal: by default the whole payload; the name of an argument, or several;
            `()` for no argument, which makes one job of the kind; or a callable on the payload that
            returns any storable value, or None for a job that is not to be unique.
        until: how long a job holds its key: until its `"start"` or until it is `"finished"`. By default
            the latter, but for `conflict="replace"` the former.
        period: instead of `until`, in seconds: from its enqueue so long, and as long as it is not
            finished.
        conflict: what becomes of an enqueue whose key is held: `"skip"` returns the holder,
            `"replace"` gives a pending holder the new payload, time and options, but for `max_attempts`,
            and returns it,
            `"raise"` raises `DuplicateJob`.

    Raises:
        InvalidOption: an argument has the wrong type or is out of range.

    """

    key: Key = None
    until: Literal["start", "finished"] | None = None
    period: float | datetime.timedelta | None = None
    conflict: Literal["skip", "replace", "raise"] = "skip"

    def __post_init__(self) -> None:
        """Check every argument; names may come in any iterable."""
        _check_choice("until", self.until, (START, FINISHED, None))
        _check_choice("conflict", self.conflict, CONFLICTS)
        if self.period is not None:
            _check_period(self.period)
        if self.period is not None and self.until is not None:
            raise InvalidOption("until and period must not be given together. Choose one of them.")
        if self.key is not None and not callable(self.key):
            object.__setattr__(self, "key", _check_names(self.key))

    @property
    def held(self) -> str:
        """How long a job holds its key: START, FINISHED or PERIOD."""
        if self.period is not None:
            return PERIOD
        return self.until or (START if self.conflict == "replace" else FINISHED)

    @property
    def locks(self) -> bool:
        """Whether an enqueue locks a pending holder until its transaction ends.

        To replace it, or since it stands for what was not enqueued: it must not start before.
        """
        return self.conflict == "replace" or (self.conflict == "skip" and self.held == START)

    @property
    def seconds(self) -> float | None:
        """The period in seconds."""
        period = self.period
        return period.total_seconds() if isinstance(period, datetime.timedelta) else period

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that `key` names."""
        return self.key if isinstance(self.key, tuple) else ()

    def key_of(self, kind: str, payload: Mapping[str, Any], own: str | None) -> str | None:
        """Return the key of a job: of `own` text if there is one, else of what the rule chooses.

        Raises:
            InvalidPayload: what the rule's callable returned cannot be stored.

        """
        part = self._part(payload) if own is None else own
        if part is None:
            return None
        try:
            # Of any size: what is stored is the digest, and the payload has its own limit.
            text = payloads.encode({"key": part}, max_bytes=sys.maxsize)
        except InvalidPayload:
            raise InvalidPayload(
                f"The unique key of {kind!r:.100} must be storable, got {shown(part)}. Return text, for "
                "example, or None for a job that is not to be unique."
            ) from None
        whole = json.dumps([kind, json.loads(text)["key"]], sort_keys=True)
        digest = hashlib.blake2b(whole.encode(), digest_size=16).hexdigest()
        return f"{self.held}:{kind[:_KIND_SHOWN]}:{digest}"

    def _part(self, payload: Mapping[str, Any]) -> object:
        if self.key is None:
            return payload
        if callable(self.key):
            return self.key(payload)
        return {name: payload[name] for name in self.names if name in payload}


def check_own_key(key: object) -> None:
    """Demand text, of any length, for a key of the caller's own.

    Raises:
        InvalidOption: it is none, or holds what PostgreSQL cannot store.

    """
    if not isinstance(key, str) or not is_storable(key):
        raise InvalidOption(
            f"unique_key must be text without NUL and lone surrogates, got {shown(key)}. "
            "Pass str() of an id, for example."
        )


def _check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        listed = " or ".join(repr(choice) for choice in choices if choice is not None)
        raise InvalidOption(f"{name} must be {listed}, got {shown(value)}. Choose one of them.")


def _check_period(period: Any) -> None:
    seconds = period.total_seconds() if isinstance(period, datetime.timedelta) else period
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0 < seconds <= LONGEST_PERIOD:  # false for NaN
        raise InvalidOption(
            f"period must be a timedelta or a number of seconds above 0 and up to "
            f"{LONGEST_PERIOD:.0f} (100 years), got {shown(period)}. Leave it out for no period."
        )


def _check_names(key: Any) -> tuple[str, ...]:
    names = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, Iterable) else None
    if names is None or not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise InvalidOption(
            f"key must be an argument's name, a list of names or a callable, got {shown(key)}. "
            "Leave it out for the whole payload."
        )
    return names
