"""Looks at the tables: are they those of this code."""

from __future__ import annotations

from collections.abc import Iterator

from django.apps import apps
from django.db import connections, models
from django.db.migrations.executor import MigrationExecutor

from django_pgjobs import symptoms
from django_pgjobs.doctor.findings import Patient, Said, Severity

APP = "django_pgjobs"


def migrations(patient: Patient) -> Said:
    """Find migrations that are not applied."""
    executor = MigrationExecutor(connections[patient.alias])
    targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] == APP]
    for migration, _backwards in executor.migration_plan(targets):
        if migration.app_label == APP:
            what = f"The migration {migration.name} is not applied."
            yield Severity.ERROR, what, "Run manage.py migrate."


def indexes(patient: Patient) -> Said:
    """Find indexes that are missing or invalid."""
    tables = {
        name: model for model in apps.get_app_config(APP).get_models() for name in _names(model)
    }
    there = dict(patient.ask(symptoms.INDEX_NAMES, names=list(tables)))
    for name in sorted(tables.keys() - there.keys()):
        model = tables[name].__name__
        what = f"The index {name} of {model} is missing."
        yield Severity.ERROR, what, f"Create it as the migrations of {APP} say, CONCURRENTLY."
    for name in sorted(name for name, is_valid in there.items() if not is_valid):
        what = f"The index {name} is invalid: it is written and never read."
        yield Severity.ERROR, what, f"REINDEX INDEX CONCURRENTLY {name}."


def _names(model: type[models.Model]) -> Iterator[str]:
    meta = model._meta  # noqa: SLF001 -- Django's own API
    yield from (index.name for index in meta.indexes)
    yield from (one.name for one in meta.constraints if isinstance(one, models.UniqueConstraint))
