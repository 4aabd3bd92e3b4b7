"""What may run at the same time, how often, and in which order: the values that are declared.

A kind has one key, a name that its jobs share: `concurrency` says how many of a key run at a time,
`rate` how many start in a period, `ordered` that they run one after the other. A queue can have the
first two.

Invariant: a value that exists is valid, and a job's key is a text that its row can hold.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import hashlib
import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django_pgjobs.exceptions import InvalidOption, InvalidPayload
from django_pgjobs.texts import is_storable

KEY_LENGTH = 200  # characters, as the column
MOST = 100_000  # jobs at a time, or in a period
LONGEST_PERIOD = 366 * 86_400  # seconds
LATE = 0.05  # seconds that a worker may come late for a start

Key = str | Callable[[dict[str, Any]], Any] | None

_SCALARS = (str, int, float, decimal.Decimal, uuid.UUID, datetime.date, datetime.time)


@dataclass(frozen=True)
class Limit:
    """At most `n` jobs at a time, for each `key` if there is one.

    `key` is the name of an argument, or a callable that takes the payload and returns a value;
    without one all jobs of the kind share the limit.

    Raises:
        InvalidOption: `n` is no whole number from 1 to 100,000, or `key` is neither.

    """

    n: int
    key: Key = None

    def __post_init__(self) -> None:
        """Check both."""
        check_count("Limit(n)", self.n, 1)
        _check_key("Limit", self.key)


@dataclass(frozen=True)
class Rate:
    """At most `n` starts in `per`, seconds or a timedelta, for each `key` if there is one.

    They are spread evenly: one each `per / n`. After a quiet time `burst` more may start at once, so
    no window of that length ever sees more than `n + burst`; without one, never more than `n`. A start
    is a claim, by the database's clock; every attempt is one.

    Raises:
        InvalidOption: a value has the wrong type or is out of range.

    """

    n: int
    per: float | datetime.timedelta
    burst: int | None = None
    key: Key = None

    def __post_init__(self) -> None:
        """Check them all."""
        check_count("Rate(n)", self.n, 1)
        seconds = _seconds(self.per)
        if seconds is None or not 0.001 <= seconds <= LONGEST_PERIOD:  # noqa: PLR2004 -- a millisecond
            raise InvalidOption(
                f"Rate(per) must be a timedelta or a number of seconds from 0.001 to "
                f"{LONGEST_PERIOD} (366 days), got {self.per!r}."
            )
        if self.burst is not None:
            check_count("Rate(burst)", self.burst, 0)
        _check_key("Rate", self.key)

    @property
    def every(self) -> int:
        """Microseconds from one start to the next, rounded up so that there are never too many."""
        return math.ceil(self._per * 1_000_000 / (self.n - self._spared))

    @property
    def at_once(self) -> int:
        """How many more may start at once after a quiet time."""
        return self._spared if self.burst is None else self.burst

    @property
    def _spared(self) -> int:
        """How many of `n` are left out of the pace, to make up for starts that a worker came late for.

        What is lost by coming late could not be made up otherwise: `n` is the most that a window sees.
        """
        if self.burst is not None:
            return 0
        return min(int(LATE * self.n / self._per), self.n // 10)

    @property
    def _per(self) -> float:
        return _seconds(self.per) or 0.0


@dataclass(frozen=True)
class Limits:
    """The limits of one kind."""

    concurrency: Limit | None = None
    rate: Rate | None = None
    ordered: bool = False

    def __post_init__(self) -> None:
        """Check that they fit together: they share one key."""
        _check_type("concurrency", self.concurrency, Limit)
        _check_type("rate", self.rate, Rate)
        if not isinstance(self.ordered, bool):
            raise InvalidOption(f"ordered must be True or False, got {self.ordered!r}.")
        if self.ordered and self.concurrency is not None and self.concurrency.n != 1:
            raise InvalidOption(
                f"concurrency must be Limit(1) where ordered is True, got {self.concurrency!r}. Jobs "
                "in order run one at a time."
            )
        if self.concurrency and self.rate and self.concurrency.key != self.rate.key:
            raise InvalidOption(
                f"rate must have the key of concurrency, {self.concurrency.key!r}, got "
                f"{self.rate.key!r}. Give one of the two limits to the queue."
            )

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.concurrency or self.rate or self.ordered)

    @property
    def key(self) -> Key:
        """What gives a job its key."""
        declared = self.concurrency or self.rate
        return declared.key if declared else None

    def rule(self, kind: str) -> dict[str, Any]:
        """Return what the claim must know: None for `slots` is no limit, 0 for `every` no rate."""
        slots = 1 if self.ordered else self.concurrency.n if self.concurrency else None
        rate = rate_rule(self.rate)
        return {"kind": kind, "slots": slots, "ordered": self.ordered, **rate}

    def key_of(
        self, kind: str, payload: Mapping[str, Any], defaults: Mapping[str, Any]
    ) -> str | None:
        """Return the key of a job: None, and no limit, where there is no value.

        Raises:
            InvalidPayload: the value can be no key.

        """
        if self.key is None:
            return check_key(kind)
        if callable(self.key):
            value = self.key({**defaults, **payload})
        else:
            value = payload[self.key] if self.key in payload else defaults.get(self.key)
        value = getattr(value, "pk", value)  # a model instance
        if value is None:
            return None
        if not isinstance(value, _SCALARS):
            raise InvalidPayload(
                f"The key of a job of the kind {kind!r} must be a text, a number, a UUID, a date or a "
                f"saved model instance, got {type(value).__name__}. Return its id, or None for no limit."
            )
        # As in the payload: a member of an enum is the text or number that it equals, not its own name.
        plain = value.value if isinstance(value, enum.Enum) else value
        return check_key(f"{kind}:{plain}")


def rate_rule(rate: Rate | None) -> dict[str, int]:
    """Return what the claim must know of a rate."""
    return {"every": rate.every, "burst": rate.at_once} if rate else {"every": 0, "burst": 0}


def check_key(key: object) -> str:
    """Return `key` as the column can hold it, a long one by its hash, or raise `InvalidOption`."""
    if not isinstance(key, str) or not key or not is_storable(key):
        raise InvalidOption(
            f"concurrency_key must be a text that is not empty, without NUL, got {key!r:.80}."
        )
    return key if len(key) <= KEY_LENGTH else hashlib.sha256(key.encode()).hexdigest()


def check_count(name: str, value: object, least: int) -> None:
    """Raise `InvalidOption` unless `value` can be a number of jobs."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
        raise InvalidOption(
            f"{name} must be a whole number from {least} to {MOST}, got {value!r:.80}."
        )


def _check_key(name: str, key: object) -> None:
    if not (key is None or callable(key) or (isinstance(key, str) and key)):
        raise InvalidOption(
            f"{name}(key) must be the name of an argument or a callable on the payload, got {key!r:.80}."
        )


def _check_type(name: str, value: object, wanted: type) -> None:
    if value is not None and not isinstance(value, wanted):
        example = "Limit(3)" if wanted is Limit else "Rate(10, per=60)"
        raise InvalidOption(
            f"{name} must be a {wanted.__name__}, got {value!r:.80}. Write {example}."
        )


def _seconds(per: object) -> float | None:
    if isinstance(per, datetime.timedelta):
        return per.total_seconds()
    number = isinstance(per, int | float) and not isinstance(per, bool)
    return float(per) if number else None  # type: ignore[arg-type]
