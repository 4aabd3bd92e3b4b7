"""What the connections to the jobs database are like: poolers between, and how transactions begin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from django.core.checks import CheckMessage, Warning  # noqa: A004 -- its name in Django
from django.db import connections, router, transaction

from django_pgjobs import conf, poolers, symptoms
from django_pgjobs.checks.configuration import has_valid_settings
from django_pgjobs.sessions import DATABASE_ERRORS, connect, execute_on_django, reason


def _aliases(databases: Sequence[str] | None) -> tuple[str, str, frozenset[str]]:
    """Return the alias of the jobs, that of listening or "", and which of them are to be asked."""
    from django_pgjobs.models import Job  # noqa: PLC0415 -- no models before the apps are loaded

    if not has_valid_settings():
        return "", "", frozenset()
    jobs, chosen = router.db_for_write(Job), conf.get()
    listening = (chosen.listen_database or jobs) if chosen.notify else ""
    asked = {jobs, listening} & set(databases or ())
    return jobs, listening, frozenset(a for a in asked if connections[a].vendor == "postgresql")


def check_poolers(*, databases: Sequence[str] | None = None, **_kwargs: Any) -> list[CheckMessage]:
    """Report what a pooler breaks: pgjobs.W001 to W004; and a server that cannot be asked: W013."""
    jobs, listening, asked = _aliases(databases)
    messages: list[CheckMessage] = []
    for alias in asked:
        try:
            lent = _is_lent(alias)
        except DATABASE_ERRORS as error:
            messages.append(_of_unreachable(alias, error))
            continue
        if lent:
            messages += _of_pooled(alias) if alias == jobs else ()
            messages += _of_pooled_listening(alias) if alias == listening else ()
    return messages


def check_listening(
    *, databases: Sequence[str] | None = None, **_kwargs: Any
) -> list[CheckMessage]:
    """Report wake-ups that cannot arrive: pgjobs.W008. It asks both servers, where both are named."""
    jobs, listening, asked = _aliases(databases)
    if jobs == listening or not {jobs, listening} <= asked:
        return []
    try:
        if _place(jobs) == _place(listening):
            return []
    except DATABASE_ERRORS:
        return []
    return [
        Warning(
            f"PGJOBS['LISTEN_DATABASE'] must lead to the database of the jobs, {jobs!r}, got {listening!r}, "
            "which leads to another one, or to a standby.",
            hint="No wake-up is heard there. Name an alias that leads to the same database of the same "
            "primary, or remove it.",
            id="pgjobs.W008",
        )
    ]


def check_sessions(*, databases: Sequence[str] | None = None, **_kwargs: Any) -> list[CheckMessage]:
    """Report transactions that begin at another level than READ COMMITTED: pgjobs.W007."""
    alias, _, asked = _aliases(databases)
    if alias not in asked:
        return []
    try:
        with transaction.atomic(using=alias):  # psycopg sets the level of OPTIONS when one begins
            [(level,)] = execute_on_django(alias)(symptoms.ISOLATION, {})
    except DATABASE_ERRORS:
        return []
    if level == "read committed":
        return []
    return [
        Warning(
            f"Transactions on {alias!r} should begin at READ COMMITTED, got {level.upper()}.",
            hint="Workers' own statements do in any case. Transactions that enqueue unique jobs, and atomic "
            "handlers, may fail with a serialization failure: run them again, as your other "
            "transactions, and silence this check; or remove the level from OPTIONS or the role.",
            id="pgjobs.W007",
        )
    ]


def _place(alias: str) -> tuple[Any, ...] | None:
    with closing(connect(alias)) as connection:
        place: tuple[Any, ...] | None = connection.connection.execute(symptoms.PLACE).fetchone()
        return place


def _is_lent(alias: str) -> bool:
    with closing(connect(alias)) as connection:
        return poolers.is_lent(connection)


def _of_unreachable(alias: str, error: Exception) -> CheckMessage:
    return Warning(
        f"The server of the database {alias!r} must be reachable, got: {reason(error)}.",
        hint=f"See that it runs, and what DATABASES[{alias!r}] says of it: no other check could ask it.",
        id="pgjobs.W013",
    )


def _of_pooled_listening(alias: str) -> Iterator[CheckMessage]:
    yield Warning(
        f"Wake-ups must come through the database {alias!r}, got a pooler in transaction mode.",
        hint="Name an alias that bypasses the pooler in PGJOBS['LISTEN_DATABASE'], or set "
        "PGJOBS['NOTIFY'] to False: workers then poll.",
        id="pgjobs.W001",
    )


def _of_pooled(alias: str) -> Iterator[CheckMessage]:
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
