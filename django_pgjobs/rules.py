"""When a schedule fires: `cron()` and `every()`, and the arithmetic of their ticks.

Invariant: which moments are ticks depends on the rule alone, for `every()` also on its first tick, and
never on a clock or on the moment from which one looks: whoever asks, however late, finds the same ones.
A rule that exists is valid, and fires some day.
"""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings

from django_pgjobs.exceptions import InvalidOption

MISSED = ("skip", "latest", "all")
NAME_LENGTH = 200  # characters, as the column
CRON_LENGTH = 200
ZONE_LENGTH = 63
SHORTEST, LONGEST = datetime.timedelta(seconds=1), datetime.timedelta(days=366)

_FIELDS = 5  # cronsim takes seconds as a sixth, and treats daylight saving differently then
_FIRST_WINDOW = datetime.timedelta(hours=1)
_ANY_TIME = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Cron:
    """A cron expression of five fields, by the clocks of a time zone.

    A fixed time of day that a day lacks, for its clocks go forward, fires at the first moment after the
    gap; one that a day has twice fires at the first of them. Where the minute or the hour begins with a
    star it goes by the time that passes: every real hour has its tick.

    Raises:
        InvalidOption: it is none, fires never, or its zone is unknown; or `cronsim` is not installed.

    """

    expression: str
    tz: str

    def __post_init__(self) -> None:
        """Read the zone and the expression, and look for a tick."""
        zone(self.tz)
        given: Any = self.expression
        if not isinstance(given, str) or len(given) > CRON_LENGTH or len(given.split()) != _FIELDS:
            raise InvalidOption(
                f"cron must be an expression of {_FIELDS} fields (minute, hour, day of month, month, day "
                f"of week) such as '0 3 * * *', got {_short(given)}."
            )
        self.after(_ANY_TIME)

    def __str__(self) -> str:
        return f"{self.expression} {self.tz}"

    def after(self, moment: datetime.datetime) -> datetime.datetime:
        """Return the first tick after `moment`."""
        for tick in self._after(moment):
            return tick
        raise InvalidOption(
            f"cron must fire some day, got {self.expression!r}, which has no date within 50 years."
        )

    def latest(
        self, first: datetime.datetime, until: datetime.datetime, most: int
    ) -> list[datetime.datetime]:
        """Return the latest ticks from `first`, itself one, to `until`: up to `most`, in order."""
        window = _FIRST_WINDOW  # a minute's schedule may have missed a year, a year's only one tick
        while until - window > first:
            found = self._between(until - window, until, most)
            if len(found) == most:
                return found
            window *= 8
        return [first, *self._between(first, until, most)][-most:] if first <= until else []

    def _between(
        self, start: datetime.datetime, until: datetime.datetime, most: int
    ) -> list[datetime.datetime]:
        found: deque[datetime.datetime] = deque(maxlen=most)
        for tick in self._after(start):
            if tick > until:
                break
            found.append(tick)
        return list(found)

    def _after(self, moment: datetime.datetime) -> Iterator[datetime.datetime]:
        """Yield ticks after `moment`, each later than the one before: cronsim may repeat one at a gap.

        Where it begins in an hour that comes twice, its first may lie before `moment`.
        """
        cronsim = _cronsim()
        last = moment = moment.astimezone(datetime.UTC)
        try:
            for tick in cronsim.CronSim(self.expression, moment.astimezone(zone(self.tz))):
                tick = tick.astimezone(datetime.UTC)  # noqa: PLW2901 -- of one zone, it compares as text would
                if tick > last:
                    yield tick
                    last = tick
        except cronsim.CronSimError as error:
            raise InvalidOption(
                f"cron must be a cron expression that fires some day, got {self.expression!r}: {error}."
            ) from None


@dataclass(frozen=True)
class Every:
    """An interval, which no clock change touches: from the first tick on, a tick each time it is over.

    Raises:
        InvalidOption: it is shorter than a second or longer than 366 days.

    """

    interval: datetime.timedelta

    def __post_init__(self) -> None:
        """Check the range."""
        if not SHORTEST <= self.interval <= LONGEST:
            raise InvalidOption(
                f"every must be from 1 second to {LONGEST.days} days, got {self.interval}."
            )

    def __str__(self) -> str:
        return f"every {self.interval}"

    def after(self, moment: datetime.datetime) -> datetime.datetime:
        """Return the tick after `moment`, which is one, or from which the first is counted."""
        return moment + self.interval

    def latest(
        self, first: datetime.datetime, until: datetime.datetime, most: int
    ) -> list[datetime.datetime]:
        """Return the latest ticks from `first`, itself one, to `until`: up to `most`, in order."""
        last = (until - first) // self.interval  # negative where there is none
        return [first + n * self.interval for n in range(max(0, last - most + 1), last + 1)]


Rule = Cron | Every


@dataclass(frozen=True)
class Recurring:
    """A rule as code declares it, with what its jobs get: what `cron()` and `every()` return."""

    rule: Rule
    payload: Mapping[str, Any] = field(default_factory=dict)
    missed: str = "latest"
    name: str = ""

    def __post_init__(self) -> None:
        """Check what is not the rule's."""
        if not isinstance(self.payload, Mapping):
            raise InvalidOption(
                f"payload must be a dict of the handler's arguments, got {_short(self.payload)}."
            )
        if self.missed not in MISSED:
            raise InvalidOption(
                f"missed must be {', '.join(map(repr, MISSED[:-1]))} or {MISSED[-1]!r}, "
                f"got {_short(self.missed)}."
            )
        name: Any = self.name
        if not isinstance(name, str) or len(name) > NAME_LENGTH or "\0" in name:
            raise InvalidOption(
                f"name must be text of at most {NAME_LENGTH} characters, got {_short(self.name)}."
            )


def cron(
    expression: str,
    *,
    tz: str | None = None,
    payload: Mapping[str, Any] | None = None,
    missed: str = "latest",
    name: str = "",
) -> Recurring:
    """Fire by a cron expression of five fields, for `@job(schedule=...)`.

    Args:
        expression: minute, hour, day of month, month, day of week.
        tz: the time zone whose clocks decide, such as "Europe/Paris"; by default `TIME_ZONE`.
        payload: the handler's arguments.
        missed: what becomes of ticks at which no worker was there: "skip", "latest" or "all".
        name: the name of the schedule, by default made of the kind.

    Raises:
        InvalidOption: a value is wrong, the expression never fires, or `cronsim` is not installed.

    """
    given: Any = expression
    rule = Cron(
        " ".join(given.split()) if isinstance(given, str) else given,
        settings.TIME_ZONE if tz is None else tz,
    )
    return Recurring(rule, {} if payload is None else payload, missed, name)


def every(  # noqa: PLR0913 -- units, and what cron() takes
    *,
    seconds: float = 0,
    minutes: float = 0,
    hours: float = 0,
    payload: Mapping[str, Any] | None = None,
    missed: str = "latest",
    name: str = "",
) -> Recurring:
    """Fire each time that an interval is over, from 1 second to 366 days, for `@job(schedule=...)`.

    Units are added up. The other arguments are those of `cron()`.

    Raises:
        InvalidOption: a value has the wrong type or is out of range.

    """
    units: dict[str, Any] = {"seconds": seconds, "minutes": minutes, "hours": hours}
    for unit, value in units.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= LONGEST.total_seconds():  # false for NaN
            raise InvalidOption(
                f"{unit} must be a number from 0 up, and every() 1 second to {LONGEST.days} days "
                f"in all, got {_short(value)}."
            )
    rule = Every(datetime.timedelta(**units))
    return Recurring(rule, {} if payload is None else payload, missed, name)


def named(given: object, kind: str) -> tuple[Recurring, ...]:
    """Return the schedules of a kind, each with a name of its own, or raise `InvalidOption`."""
    several = not isinstance(given, Recurring)
    if isinstance(given, str) or not isinstance(given, Recurring | Iterable):
        given = [given]
    found = [given] if isinstance(given, Recurring) else list(given)
    for one in found:
        if not isinstance(one, Recurring):
            raise InvalidOption(
                f"schedule must be cron(...), every(...) or a list of them, got {_short(one)}."
            )
    names = [one.name or (f"{kind}: {one.rule}" if several else kind) for one in found]
    for name in names:
        if names.count(name) > 1:
            raise InvalidOption(
                f"schedule must have names that differ, got {name!r} twice. Give each a name=."
            )
    return tuple(replace(one, name=name) for one, name in zip(found, names, strict=True))


def zone(name: object) -> ZoneInfo:
    """Return a time zone, or raise `InvalidOption`."""
    try:
        # "localtime" is another one on each machine.
        if isinstance(name, str) and 0 < len(name) <= ZONE_LENGTH and name != "localtime":
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, no name at all, a folder of them
        pass
    raise InvalidOption(
        f"tz must be the name of a time zone such as 'Europe/Paris', got {_short(name)}. Where it is "
        "right, install tzdata."
    )


def has_cron() -> bool:
    """Say whether `cronsim`, which reads cron expressions, is installed."""
    return find_spec("cronsim") is not None


def _cronsim() -> Any:
    try:
        return import_module("cronsim")  # only those who use cron() need it
    except ImportError:
        raise InvalidOption(
            "cron() needs the package cronsim, which is not installed. Install django-pgjobs[cron], "
            "or use every()."
        ) from None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004
