"""Say whether a failed attempt is followed by another one, and after how long.

A policy is a function: from the number of an attempt and its error to the seconds that the job waits. The
ready-made ones can be compared, printed and asked like any function:

    Exponential()(3, error)      8.0

Invariant: a delay is a finite number of seconds, not negative and never over its policy's cap, for any
attempt; and it is spread, so that jobs that failed together do not come back together.
"""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from django_pgjobs import delays
from django_pgjobs.exceptions import Discard, InvalidDelay, InvalidOption, Retry, Snooze

if TYPE_CHECKING:
    from random import Random

_DAY = 86_400
_LONGEST_CAP = 1_000_000_000  # seconds, 31 years
_JITTER = 0.1  # the share of a delay over which it is spread
_MOST_DELAYS = 1_000

# What a handler says by raising them, or meant to say, is about this job: no general rule overrules it.
_ASKED = (Retry, Snooze, InvalidDelay)

# What the options of `@job` take beside a policy and a single class.
Delays = Sequence[float | datetime.timedelta]
Errors = type[Exception] | Iterable[type[Exception]]


class RetryPolicy(Protocol):
    """What the `retry` option of `@job` takes."""

    def __call__(self, attempt: int, error: BaseException, /) -> float | datetime.timedelta:
        """Return how long to wait after the failure of `attempt`, the first being 1."""


def _read(given: Any) -> Iterable[float]:
    if not isinstance(given, list | tuple) or not 1 <= len(given) <= _MOST_DELAYS:
        raise InvalidOption(
            f"Fixed.delays must be a list of 1 to {_MOST_DELAYS} delays, got {given!r:.80}. "
            "Write the delays in brackets: [1, 5, 60]."
        )
    for number, delay in enumerate(given):
        seconds = delays.seconds(delay)
        if seconds is None or seconds > _LONGEST_CAP:
            raise InvalidOption(
                f"Fixed.delays[{number}] must be a timedelta or a number of seconds from 0 to "
                f"{_LONGEST_CAP}, got {delay!r:.80}. Choose a delay in that range."
            )
        yield seconds


def _require(policy: object, option: str, *, at_least: float, at_most: float) -> None:
    value: Any = getattr(policy, option)
    # Exact types: True is no number of seconds. The comparison is false for NaN.
    if type(value) in (int, float) and at_least <= value <= at_most:
        return
    raise InvalidOption(
        f"{type(policy).__name__}.{option} must be a number from {at_least} to {at_most}, "
        f"got {value!r:.80}. Choose a value in that range."
    )


class _Spread:
    """The ready-made policies: what they say is the middle of a range."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def cap(self) -> float: ...
        @property
        def jitter(self) -> float: ...

    def spread(self, middle: float, rng: Random) -> float:
        """Return a delay around `middle`, give or take the share `jitter`, and not over the cap.

        A capped delay is spread below the cap, over the same share of itself as any other, instead of
        piling up on the cap.
        """
        middle = min(middle, self.cap / (1 + self.jitter))
        # Rounding may carry the product a hair over the cap.
        return min(middle * rng.uniform(1 - self.jitter, 1 + self.jitter), self.cap)


@dataclass(frozen=True, slots=True)
class Exponential(_Spread):
    """Wait `base ** attempt` seconds, give or take the share `jitter`, and at most `cap` seconds."""

    base: float = 2.0
    cap: float = _DAY
    jitter: float = _JITTER

    def __post_init__(self) -> None:
        """Refuse a policy that could give a delay out of range."""
        _require(self, "base", at_least=1, at_most=1_000)
        _require(self, "cap", at_least=1, at_most=_LONGEST_CAP)
        _require(self, "jitter", at_least=0, at_most=0.9)

    def __call__(self, attempt: int, _error: object = None, /) -> float:
        """Return the seconds to wait after the failure of `attempt`, before they are spread."""
        try:
            return min(float(self.base) ** attempt, self.cap)
        except OverflowError:
            return self.cap


@dataclass(frozen=True, slots=True)
class Linear(_Spread):
    """Wait `step` seconds longer after each attempt, give or take `jitter`, and at most `cap` seconds."""

    step: float = 60.0
    cap: float = _DAY
    jitter: float = _JITTER

    def __post_init__(self) -> None:
        """Refuse a policy that could give a delay out of range."""
        _require(self, "step", at_least=0.1, at_most=_LONGEST_CAP)
        _require(self, "cap", at_least=1, at_most=_LONGEST_CAP)
        _require(self, "jitter", at_least=0, at_most=0.9)

    def __call__(self, attempt: int, _error: object = None, /) -> float:
        """Return the seconds to wait after the failure of `attempt`, before they are spread."""
        return float(min(self.step * attempt, self.cap))


@dataclass(frozen=True, slots=True)
class Fixed(_Spread):
    """Wait these delays one after the other, then the last one again and again, give or take `jitter`.

    Each is a number of seconds or a timedelta. How many attempts there are says `max_attempts` alone.
    """

    delays: Delays
    jitter: float = _JITTER

    def __post_init__(self) -> None:
        """Refuse what is no list of delays; keep it as a tuple of seconds."""
        object.__setattr__(self, "delays", tuple(_read(self.delays)))
        _require(self, "jitter", at_least=0, at_most=0.9)

    @property
    def cap(self) -> float:
        """The longest delay with its jitter."""
        return _LONGEST_CAP

    def __call__(self, attempt: int, _error: object = None, /) -> float:
        """Return the seconds to wait after the failure of `attempt`, before they are spread."""
        delay: Any = self.delays[min(max(attempt, 1), len(self.delays)) - 1]
        return float(delay)


DEFAULT = Exponential()


@dataclass(frozen=True, slots=True)
class Retries:
    """The options `retry`, `retry_on` and `discard_on` of a kind, checked and complete."""

    policy: RetryPolicy = DEFAULT
    retry_on: tuple[type[Exception], ...] = (Exception,)
    discard_on: tuple[type[Exception], ...] = ()

    def delay(self, attempt: int, error: BaseException, rng: Random) -> float | None:
        """Return the seconds to wait after `error` failed `attempt`; None gives up.

        Raises whatever a policy raises that is a function of the project's, and `InvalidDelay` for what
        is no delay.
        """
        kind = type(error)
        if self._gives_up(kind):
            return None
        asked = vars(error).get("delay") if issubclass(kind, Retry) else None
        wanted = self.policy(attempt, error) if asked is None else asked
        seconds = delays.seconds(wanted)
        if seconds is None:
            raise InvalidDelay(f"A delay must be {delays.EXPECTED}, got {wanted!r:.80}.")
        if asked is not None:
            return seconds
        if isinstance(self.policy, _Spread):
            return self.policy.spread(seconds, rng)
        # A function may pass on what a server said: never earlier than that.
        return min(seconds * rng.uniform(1, 1 + _JITTER), delays.LONGEST)

    def _gives_up(self, kind: type[BaseException]) -> bool:
        if issubclass(kind, Discard):
            return True
        # What is no Exception, such as SystemExit or a cancellation, ends a handler from outside.
        if issubclass(kind, _ASKED) or not issubclass(kind, Exception):
            return False
        return issubclass(kind, self.discard_on) or not issubclass(kind, self.retry_on)


DEFAULTS = Retries()


def check_retries(retry: object, retry_on: object, discard_on: object) -> Retries:
    """Return the three options of `@job`, each None where it is not given, as one value.

    Raises:
        InvalidOption: one has the wrong type, or two contradict each other.

    """
    if retry is None and retry_on is None and discard_on is None:
        return DEFAULTS
    policy = DEFAULT if retry is None else _check_policy(retry)
    discarded = () if discard_on is None else _check_errors("discard_on", discard_on)
    if retry_on is None:
        return Retries(policy, discard_on=discarded)
    retried = _check_errors("retry_on", retry_on)
    _refuse_contradiction(retried, discarded)
    return Retries(policy, retried, discarded)


def _check_policy(retry: Any) -> RetryPolicy:
    if isinstance(retry, list | tuple):
        return Fixed(retry)
    advice = ""
    if isinstance(retry, type):
        advice = f"Write {retry.__name__}(), with brackets."
    elif not callable(retry):
        advice = "A single delay for all attempts is a list of one."
    elif inspect.iscoroutinefunction(retry):
        advice = "Make it a def: a policy is asked where nothing can be awaited."
    elif not _takes_two(retry):
        advice = "Give it these two parameters."
    if advice:
        raise InvalidOption(
            "retry must be Exponential(), Linear(), Fixed(), a list of delays or a function of "
            f"(attempt, error), got {retry!r:.80}. {advice}"
        )
    policy: RetryPolicy = retry
    return policy


def _takes_two(function: Any) -> bool:
    try:
        inspect.signature(function).bind(1, None)
    except TypeError:
        return False
    except ValueError:  # a builtin that does not tell
        return True
    return True


def _check_errors(option: str, given: Any) -> tuple[type[Exception], ...]:
    listed = isinstance(given, Iterable) and not isinstance(given, str | type)
    kinds = tuple(given) if listed else (given,)
    good = kinds and all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds)
    if not good:
        raise InvalidOption(
            f"{option} must be a subclass of Exception or several in a tuple, got {given!r:.80}. "
            "Leave it out for the default; SystemExit and its like are always retried."
        )
    return kinds


def _refuse_contradiction(
    retried: tuple[type[Exception], ...], discarded: tuple[type[Exception], ...]
) -> None:
    """Refuse an entry of `retry_on` that would never count. So nobody need know which of two wins."""
    for kind in retried:
        for wider in discarded:
            if issubclass(kind, wider):
                raise InvalidOption(
                    f"retry_on must be something that discard_on does not cover, got "
                    f"{kind.__name__}, which {wider.__name__} in discard_on covers. "
                    "Remove it, or say in discard_on more narrowly what to give up."
                )
