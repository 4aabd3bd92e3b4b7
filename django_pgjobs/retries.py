"""Say how long a failed job waits before its next attempt.

Invariant: a delay is a finite number of seconds, above zero and never over the policy's cap, for any
attempt count; and it is spread, so that jobs that failed together do not come back together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from django_pgjobs.exceptions import InvalidOption

if TYPE_CHECKING:
    from random import Random

_LONGEST_CAP = (
    1_000_000_000  # seconds, 31 years: `run_at` stays far inside what the table can store
)


class RetryPolicy(Protocol):
    """What the `retry` option of `@job` takes."""

    def delay(self, attempt: int, rng: Random) -> float:
        """Return the seconds to wait after the failure of `attempt`, the first being 1."""


@dataclass(frozen=True, slots=True)
class Exponential:
    """Wait `base ** attempt` seconds, give or take the share `jitter`, and at most `cap` seconds.

    The cap bounds the delay with its jitter: a capped delay is spread below the cap, over the same share
    of itself as any other, instead of piling up on the cap.
    """

    base: float = 2.0
    cap: float = 86_400
    jitter: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a policy that could give a delay out of range."""
        _require("base", self.base, at_least=1, at_most=1_000)
        _require("cap", self.cap, at_least=1, at_most=_LONGEST_CAP)
        _require("jitter", self.jitter, at_least=0, at_most=0.9)

    def delay(self, attempt: int, rng: Random) -> float:
        """Return the seconds to wait after the failure of `attempt`, the first being 1."""
        try:
            wanted = float(self.base) ** attempt
        except OverflowError:
            wanted = math.inf
        middle = min(wanted, self.cap / (1 + self.jitter))
        # Rounding may carry the product a hair over the cap.
        return min(middle * rng.uniform(1 - self.jitter, 1 + self.jitter), self.cap)


def _require(option: str, value: object, *, at_least: float, at_most: float) -> None:
    # Exact types: True is no number of seconds. The comparison is false for NaN.
    if type(value) in (int, float) and at_least <= value <= at_most:  # type: ignore[operator]
        return
    message = (
        f"Exponential.{option} must be a number from {at_least} to {at_most}, got {value!r}. "
        f"Choose a value in that range."
    )
    raise InvalidOption(message)


DEFAULT = Exponential()
