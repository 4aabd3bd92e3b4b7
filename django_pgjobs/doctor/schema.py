"""Looks at the tables: are they those of this code, and may this role work on them."""

from __future__ import annotations

import shlex

from django_pgjobs import rights, schema
from django_pgjobs.doctor.findings import Patient, Said, Severity
from django_pgjobs.sessions import execute_on_django


def migrations(patient: Patient) -> Said:
    """Find migrations that are not applied."""
    for name in schema.missing_migrations(execute_on_django(patient.alias)):
        yield Severity.ERROR, f"The migration {name} is not applied.", "Run manage.py migrate."


def indexes(patient: Patient) -> Said:
    """Find indexes that are missing or invalid."""
    found = schema.indexes(execute_on_django(patient.alias))
    for name, model in found.missing.items():
        yield Severity.ERROR, f"The index {name} of {model} is missing.", schema.CREATE
    for name in found.invalid:
        what = f"The index {name} is invalid: it is written and never read."
        yield Severity.ERROR, what, schema.REBUILD.format(name=name)


def role(patient: Patient) -> Said:
    """Find what this role lacks to be a worker."""
    found = rights.standing(execute_on_django(patient.alias), "worker")
    option = " --row-security" if found.by_row else ""
    for missing in found.missing:
        what = f"The role {found.role!r} has no {missing}: no worker starts as it."
        do = f"As the owner of the tables, run what this prints: manage.py pgjobs grants --worker {shlex.quote(found.role)}{option}"
        yield Severity.ERROR, what, do


def functions(patient: Patient) -> Said:
    """Find SQL functions that are missing, or not those of this code."""
    found = schema.changed_functions(execute_on_django(patient.alias))
    for name in found.missing:
        what = f"The SQL function {name} is missing: workers do without, plain SQL cannot."
        yield Severity.WARNING, what, schema.REPLACE
    for name in found.changed:
        what = f"The SQL function {name} is not that of this release, and workers call it."
        yield Severity.ERROR, what, schema.REPLACE
