"""System checks: what `manage.py check` says about the project's configuration.

Invariant: an id never changes its meaning, so that `SILENCED_SYSTEM_CHECKS` stays true.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 -- its name in Django
from django.db import connections, router

from django_pgjobs import conf, poolers
from django_pgjobs.exceptions import InvalidOption, InvalidPayload, UnknownKind
from django_pgjobs.sessions import CONNECTION_ERRORS, connect

if TYPE_CHECKING:
    from django_pgjobs.models import Schedule


def check_settings(**_kwargs: Any) -> list[CheckMessage]:
    """Report the faults of the `PGJOBS` setting: pgjobs.E001 to pgjobs.E004, E006, E007."""
    return [
        Error(problem.message, hint=problem.hint, id=problem.id)
        for problem in conf.problems(getattr(settings, "PGJOBS", {}))
    ]


def check_database(**_kwargs: Any) -> list[CheckMessage]:
    """Report a jobs database that is not PostgreSQL: pgjobs.E005."""
    from django_pgjobs.models import Job  # noqa: PLC0415 -- no models before the apps are loaded

    alias = router.db_for_write(Job)
    vendor = connections[alias].vendor
    if vendor == "postgresql":
        return []
    return [
        Error(
            f"The database of the jobs must be PostgreSQL, got {vendor} for {alias!r}.",
            hint="Set its ENGINE to 'django.db.backends.postgresql', or route the models of "
            "django_pgjobs to such a database.",
            id="pgjobs.E005",
        )
    ]


def check_poolers(*, databases: Sequence[str] | None = None, **_kwargs: Any) -> list[CheckMessage]:
    """Report what a pooler in transaction mode breaks: pgjobs.W001 to W004. It asks the server.

    Django runs it for the databases that `check --database` or `migrate` names.
    """
    from django_pgjobs.models import Job  # noqa: PLC0415 -- no models before the apps are loaded

    if any(conf.problems(getattr(settings, "PGJOBS", {}))):
        return []  # check_settings() tells
    jobs = router.db_for_write(Job)
    chosen = conf.get()
    listening = (chosen.listen_database or jobs) if chosen.notify else ""
    messages: list[CheckMessage] = []
    for alias in {jobs, listening} & set(databases or ()):
        if connections[alias].vendor == "postgresql" and _is_lent(alias):
            messages += _of_sessions(alias) if alias == jobs else ()
            messages += _of_listening(alias) if alias == listening else ()
    return messages


def check_schedules(
    *, databases: Sequence[str] | None = None, **_kwargs: Any
) -> list[CheckMessage]:
    """Report active schedules that cannot fire: pgjobs.W005, W006. It asks the server, as above."""
    from django_pgjobs.models import Schedule  # noqa: PLC0415 -- no models before the apps are loaded

    if any(conf.problems(getattr(settings, "PGJOBS", {}))):
        return []  # check_settings() tells
    alias = router.db_for_write(Schedule)
    if alias not in (databases or ()) or connections[alias].vendor != "postgresql":
        return []
    try:
        if Schedule._meta.db_table not in connections[alias].introspection.table_names():  # noqa: SLF001
            return []  # before the first migrate
        return [
            message
            for schedule in Schedule.objects.using(alias).active().order_by("name")
            for message in _of_schedule(schedule)
        ]
    except CONNECTION_ERRORS:  # whoever needs the database tells better what is wrong
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


def _is_lent(alias: str) -> bool:
    try:
        with closing(connect(alias)) as connection:
            return poolers.is_lent(connection)
    except CONNECTION_ERRORS:  # whoever needs the database tells better what is wrong
        return False


def _of_listening(alias: str) -> Iterator[CheckMessage]:
    yield Warning(
        f"Wake-ups must come through the database {alias!r}, got a pooler in transaction mode.",
        hint="Name an alias that bypasses the pooler in PGJOBS['LISTEN_DATABASE'], or set "
        "PGJOBS['NOTIFY'] to False: workers then poll.",
        id="pgjobs.W001",
    )


def _of_sessions(alias: str) -> Iterator[CheckMessage]:
    given = connections[alias].settings_dict
    options = given["OPTIONS"]
    if not given.get("DISABLE_SERVER_SIDE_CURSORS"):
        yield Warning(
            f"DATABASES[{alias!r}] must disable server-side cursors behind a pooler in "
            "transaction mode, got none of that.",
            hint="Set DISABLE_SERVER_SIDE_CURSORS to True: else .iterator() outside a "
            "transaction fails in handlers.",
            id="pgjobs.W002",
        )
    if options.get("prepare_threshold") is not None:
        yield Warning(
            f"'prepare_threshold' of DATABASES[{alias!r}] must be None behind a pooler in "
            f"transaction mode, got {options['prepare_threshold']!r}.",
            hint="Remove it from OPTIONS. Where the pooler knows prepared statements (PgBouncer "
            "1.21 with max_prepared_statements) and libpq is 17 or newer, silence this check.",
            id="pgjobs.W003",
        )
    for name in ("assume_role", "options"):
        if options.get(name):
            yield Warning(
                f"DATABASES[{alias!r}] must set nothing for a session behind a pooler in "
                f"transaction mode, got {name!r} in OPTIONS.",
                hint="The pooler refuses or ignores it, or lends the session on with it. Use "
                "ALTER ROLE ... SET on the server, and log in with the role itself.",
                id="pgjobs.W004",
            )
