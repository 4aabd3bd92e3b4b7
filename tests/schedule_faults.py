"""Faults to plant into schedules: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def ticks_unlocked() -> None:
    """Fire a tick without the lock of its schedule's row."""
    from django_pgjobs.timetable import ScheduleQuerySet  # noqa: PLC0415 -- no models before the apps are loaded

    ScheduleQuerySet.select_for_update = lambda self, **_: self


def ticks_wait() -> None:
    """Wait for a schedule that somebody else holds."""
    from django.db.models import QuerySet  # noqa: PLC0415 -- likewise

    from django_pgjobs.timetable import ScheduleQuerySet  # noqa: PLC0415 -- likewise

    ScheduleQuerySet.select_for_update = lambda self, **_: QuerySet.select_for_update(self)


def ticks_apart() -> None:
    """Commit the job of a tick before the tick."""
    from django.db import connections  # noqa: PLC0415 -- likewise

    from django_pgjobs import schedules  # noqa: PLC0415 -- likewise
    from django_pgjobs.sessions import connect  # noqa: PLC0415 -- likewise

    real = schedules._enqueue

    def enqueue(schedule: Any, meta: Any, alias: str, **options: Any) -> Any:
        own = connections[alias]
        connections[alias] = connect(alias)
        try:
            return real(schedule, meta, alias, **options)
        finally:
            connections[alias].close()
            connections[alias] = own

    schedules._enqueue = enqueue


def ticks_by_the_host_s_clock() -> None:
    """Let the clock of the worker's machine decide what is due."""
    from django.db.models import DateTimeField, Value  # noqa: PLC0415 -- likewise
    from django.utils import timezone  # noqa: PLC0415 -- likewise

    from django_pgjobs import schedules, timetable  # noqa: PLC0415 -- likewise

    schedules.Now = timetable.Now = lambda: Value(timezone.now(), DateTimeField())


def the_past_counts_when_enabled() -> None:
    """Count the ticks of a schedule that is switched on from when it was made."""
    from django_pgjobs.timetable import ScheduleQuerySet  # noqa: PLC0415 -- likewise

    ScheduleQuerySet.enable = lambda self: self.filter(enabled=False).update(enabled=True)


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        ticks_unlocked,
        ticks_wait,
        ticks_apart,
        ticks_by_the_host_s_clock,
        the_past_counts_when_enabled,
    )
}
