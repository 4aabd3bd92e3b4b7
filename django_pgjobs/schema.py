"""Compare the tables with what this code's migrations and models say of them.

Invariant: it changes nothing, and reads only the catalogue and Django's table of migrations. A database that
has more than this code knows of is well: it is that of a later release.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

from django.apps import apps
from django.conf import settings
from django.db import models

from django_pgjobs import functions, symptoms
from django_pgjobs.sessions import Execute

APP = "django_pgjobs"

# What to do about an index that is missing, and about one that is invalid.
CREATE = f"Create it as the migrations of {APP} say, CONCURRENTLY."
REBUILD = "REINDEX INDEX CONCURRENTLY {name}."
# And about a function.
REPLACE = f"Run what manage.py sqlmigrate {APP} {functions.MIGRATION} prints."


class Indexes(NamedTuple):
    """Those that are not as the models say."""

    missing: dict[str, str]  # with the name of the model
    invalid: list[str]


class Functions(NamedTuple):
    """The SQL functions of maintenance that are not as this code would create them, by signature."""

    missing: list[str]
    changed: list[str]


def missing_migrations(execute: Execute) -> list[str]:
    """Return the names of this code's migrations that are not applied, in order; none where that is hidden."""
    applied = _applied(execute)
    return [] if applied is None else sorted(_known() - applied)


def indexes(execute: Execute) -> Indexes:
    """Find indexes that are missing, or invalid since their building failed."""
    tables = {
        name: model for model in apps.get_app_config(APP).get_models() for name in _names(model)
    }
    there: dict[str, bool] = dict(execute(symptoms.INDEX_NAMES, {"names": list(tables)}))
    missing = {name: tables[name].__name__ for name in sorted(tables.keys() - there.keys())}
    return Indexes(missing, sorted(name for name, is_valid in there.items() if not is_valid))


def changed_functions(execute: Execute) -> Functions:
    """Find functions that are missing, or others than this code's; those of a later release are well."""
    known = _known()
    if functions.MIGRATION not in known:
        return Functions([], [])
    expected = {one.signature: one.body for one in functions.functions()}
    there: dict[str, str | None] = dict(execute(symptoms.FUNCTIONS, {"signatures": list(expected)}))
    later = (_applied(execute) or set()) - known
    return Functions(
        [one for one, body in there.items() if body is None],
        [one for one, body in there.items() if body not in {None, expected[one]} and not later],
    )


def _applied(execute: Execute) -> set[str] | None:
    """Return the names of the migrations that are applied; None where they are hidden."""
    [(reads,)] = execute(symptoms.READS_MIGRATIONS, {})
    if reads is False:
        return None
    return {name for (name,) in execute(symptoms.MIGRATIONS, {"app": APP})} if reads else set()


def _known() -> set[str]:
    """Return what Django would load as migrations; nothing where the project switches them off."""
    # As Django's loader finds it, which every process would pay for that imports it.
    name = settings.MIGRATION_MODULES.get(APP, f"{APP}.migrations")
    if name is None:
        return set()
    modules = pkgutil.iter_modules(import_module(name).__path__)
    return {one.name for one in modules if not one.ispkg and one.name[0] not in "_~"}


def _names(model: type[models.Model]) -> Iterator[str]:
    meta = model._meta  # noqa: SLF001 -- Django's own API
    yield from (index.name for index in meta.indexes)
    yield from (one.name for one in meta.constraints if isinstance(one, models.UniqueConstraint))
