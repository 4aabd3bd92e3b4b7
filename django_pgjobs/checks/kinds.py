"""What is declared with `@job`, or stands in the table of schedules, and cannot work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 -- its name in Django
from django.db import connections, router

from django_pgjobs import conf, registry
from django_pgjobs.checks.configuration import has_valid_settings
from django_pgjobs.exceptions import InvalidOption, InvalidPayload, UnknownKind
from django_pgjobs.sessions import DATABASE_ERRORS

if TYPE_CHECKING:
    from django_pgjobs.models import Schedule


def check_kinds(**_kwargs: Any) -> list[CheckMessage]:
    """Report kinds whose options do not fit the settings: pgjobs.E009."""
    if not has_valid_settings():
        return []
    declared = {job_type.kind: job_type for job_type in registry.kinds().values()}
    by_transaction = conf.get().transaction_queues
    return [
        Error(
            f"The kind {kind!r} must be in a queue that is claimed by lease, for it has limits, got "
            f"{job_type.options.queue!r}, which PGJOBS['QUEUES'] claims by transaction.",
            hint="Every enqueue is refused. Give the kind another queue=, or claim this one by lease.",
            id="pgjobs.E009",
        )
        for kind, job_type in sorted(declared.items())
        if job_type.limits and job_type.options.queue in by_transaction
    ]


def check_schedules(
    *, databases: Sequence[str] | None = None, **_kwargs: Any
) -> list[CheckMessage]:
    """Report active schedules that cannot fire: pgjobs.W005, W006. It asks the server."""
    from django_pgjobs.models import Schedule  # noqa: PLC0415 -- no models before the apps are loaded

    alias = router.db_for_write(Schedule)
    if not has_valid_settings() or alias not in (databases or ()):
        return []
    if connections[alias].vendor != "postgresql":
        return []
    try:
        if Schedule._meta.db_table not in connections[alias].introspection.table_names():  # noqa: SLF001
            return []  # before the first migrate
        active = Schedule.objects.using(alias).defer(*Schedule.added).active()
        return [
            message for schedule in active.order_by("name") for message in _of_schedule(schedule)
        ]
    except DATABASE_ERRORS:
        return []


def _of_schedule(schedule: Schedule) -> Iterator[CheckMessage]:
    from django_pgjobs import schedules  # noqa: PLC0415 -- no models before the apps are loaded

    try:
        schedules.check(schedule.kind, schedule.payload)
        _ = schedule.rule
    except UnknownKind as error:
        yield Warning(
            f"The schedule {schedule.name!r} must be of a kind that has a handler, got "
            f"{schedule.kind!r}.",
            hint=f"{error} Or give the handler the old name as one of its aliases; or change, disable or "
            "delete the schedule.",
            id="pgjobs.W005",
        )
    except (InvalidOption, InvalidPayload) as error:
        yield Warning(
            f"The schedule {schedule.name!r} must be able to fire, got: {error}",
            hint="Change it in the admin, or disable it there.",
            id="pgjobs.W006",
        )
