"""What is wrong with the databases that jobs are to be on, as far as the settings and the routers say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 -- its name in Django
from django.db import connections, router

from django_pgjobs import conf, schema
from django_pgjobs.checks.configuration import has_valid_settings


def check_databases(**_kwargs: Any) -> list[CheckMessage]:
    """Report databases that jobs cannot be on: pgjobs.E005, E008, E010, E011, W009."""
    from django_pgjobs.models import Job  # noqa: PLC0415 -- no models before the apps are loaded

    alias = router.db_for_write(Job)
    found = list(_of_jobs(alias))
    if has_valid_settings():
        found += _of_listening(conf.get().listen_database)
    return found + list(_of_routers(alias))


def _of_jobs(alias: str) -> Iterator[CheckMessage]:
    vendor = connections[alias].vendor
    if vendor != "postgresql":
        yield Error(
            f"The database of the jobs must be PostgreSQL, got {vendor} for {alias!r}.",
            hint="Set its ENGINE to 'django.db.backends.postgresql', or route the models of "
            "django_pgjobs to such a database.",
            id="pgjobs.E005",
        )
    if not connections[alias].settings_dict["AUTOCOMMIT"]:
        yield Warning(
            f"DATABASES[{alias!r}] must have AUTOCOMMIT True, got False.",
            hint="Remove it: else nothing is stored that a handler or a caller does not commit by itself, "
            "and no wake-up is sent for a job, which waits for the next poll.",
            id="pgjobs.W009",
        )


def _of_listening(alias: str | None) -> Iterator[CheckMessage]:
    if alias is not None and (vendor := connections[alias].vendor) != "postgresql":
        yield Error(
            f"PGJOBS['LISTEN_DATABASE'] must be a PostgreSQL, got {vendor} for {alias!r}.",
            hint="Name the alias of a direct connection to the server of the jobs, or remove it.",
            id="pgjobs.E008",
        )


def _of_routers(alias: str) -> Iterator[CheckMessage]:
    models = list(apps.get_app_config(schema.APP).get_models())
    elsewhere = {
        model.__name__: other for model in models if (other := router.db_for_write(model)) != alias
    }
    if elsewhere:
        yield Error(
            f"The routers must give one database for all models of {schema.APP}, got {alias!r} for Job and "
            + ", ".join(f"{other!r} for {name}" for name, other in elsewhere.items())
            + ".",
            hint="Decide by model._meta.app_label: one statement reads several of these tables.",
            id="pgjobs.E010",
        )
    refused = [model.__name__ for model in models if not router.allow_migrate_model(alias, model)]
    if refused:
        yield Error(
            f"The routers must allow the migrations of {schema.APP} on the database of the jobs, got a "
            f"refusal on {alias!r} for {', '.join(refused)}.",
            hint="Return True from allow_migrate() for this app and database: else migrate makes no "
            "tables there.",
            id="pgjobs.E011",
        )
