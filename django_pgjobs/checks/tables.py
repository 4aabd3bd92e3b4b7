"""Whether the tables of the jobs are those of this code."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.checks import CheckMessage, Warning  # noqa: A004 -- its name in Django
from django.db import connections, router

from django_pgjobs import schema
from django_pgjobs.sessions import DATABASE_ERRORS, execute_on_django


def check_tables(*, databases: Sequence[str] | None = None, **_kwargs: Any) -> list[CheckMessage]:
    """Report migrations, indexes and functions that are missing: pgjobs.W010, W011, W016. It asks the server.

    They are warnings, since an error would keep `migrate` from doing something about it.
    """
    from django_pgjobs.models import Job  # noqa: PLC0415 -- no models before the apps are loaded

    alias = router.db_for_write(Job)
    if alias not in (databases or ()) or connections[alias].vendor != "postgresql":
        return []
    try:
        missing = schema.missing_migrations(execute_on_django(alias))
        if not missing:
            return [*_of_indexes(alias), *_of_functions(alias)]
    except DATABASE_ERRORS:
        return []
    if sys.argv[1:2] == ["migrate"]:  # which checks first, and need not be told
        return []
    return [
        Warning(
            f"Every migration of {schema.APP} must be applied to {alias!r}, got "
            f"{', '.join(missing)} unapplied.",
            hint=f"Run manage.py migrate --database {alias}.",
            id="pgjobs.W010",
        )
    ]


def _of_indexes(alias: str) -> Iterator[CheckMessage]:
    found = schema.indexes(execute_on_django(alias))
    for name, model in found.missing.items():
        yield Warning(
            f"{model} must have the index {name}, got none on {alias!r}.",
            hint=schema.CREATE,
            id="pgjobs.W011",
        )
    for name in found.invalid:
        yield Warning(
            f"The index {name} must be valid, got one on {alias!r} whose building failed.",
            hint=schema.REBUILD.format(name=name),
            id="pgjobs.W011",
        )


def _of_functions(alias: str) -> Iterator[CheckMessage]:
    found = schema.changed_functions(execute_on_django(alias))
    for names, got in (found.missing, "none"), (found.changed, "another one"):
        for name in names:
            yield Warning(
                f"The SQL function {name} must be that of this release, got {got} on {alias!r}.",
                hint=schema.REPLACE,
                id="pgjobs.W016",
            )
