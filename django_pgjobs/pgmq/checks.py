"""System checks of the app: what `manage.py check` says about pgmq.

Invariant: as in the checks of the jobs, an id never changes its meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error
from django.db import connections, router

from django_pgjobs.exceptions import PgmqMissing
from django_pgjobs.pgmq import installation
from django_pgjobs.sessions import DATABASE_ERRORS


def check_database(**_kwargs: Any) -> list[CheckMessage]:
    """Report a database of the queues that is not PostgreSQL: pgjobs.E060."""
    alias = _alias()
    vendor = connections[alias].vendor
    if vendor == "postgresql":
        return []
    return [
        Error(
            f"The database of pgmq must be PostgreSQL, got {vendor} for {alias!r}.",
            hint="Route the models of django_pgjobs_pgmq to a PostgreSQL database, or take "
            "'django_pgjobs.pgmq' out of INSTALLED_APPS.",
            id="pgjobs.E060",
        )
    ]


def check_installation(
    *, databases: Sequence[str] | None = None, **_kwargs: Any
) -> list[CheckMessage]:
    """Report that pgmq is missing and that `migrate` could not install it: pgjobs.E061. It asks the server.

    Django runs it for the databases that `check --database` or `migrate` names.
    """
    alias = _alias()
    connection = connections[alias]
    if alias not in (databases or ()) or connection.vendor != "postgresql":
        return []
    if installation.has_wheel():
        return []
    try:
        if installation.is_installed(connection) or installation.extension_is_available(connection):
            return []
    except DATABASE_ERRORS:  # whoever needs the database tells better what is wrong
        return []
    expected, _, hint = str(PgmqMissing.of(alias)).partition(". ")
    return [Error(f"{expected}.", hint=hint, id="pgjobs.E061")]


def _alias() -> str:
    from django_pgjobs.pgmq.models import QueueRecord  # noqa: PLC0415 -- no models before the apps are loaded

    return router.db_for_write(QueueRecord)
