"""A migration of ours leaves workers of the release before at work, and locks no table for long."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from django.contrib.postgres.operations import (
    AddConstraintNotValid,
    AddIndexConcurrently,
    RemoveIndexConcurrently,
    ValidateConstraint,
)
from django.db import migrations, models
from django.db.migrations.operations.base import Operation
from django.db.models import NOT_PROVIDED, Q

from django_pgjobs import functions
from django_pgjobs import migrations as package
from django_pgjobs.models import Job
from django_pgjobs.operations import InstallFunctions
from tests.next_release import migrations as later

FIRST = "0001_initial"
NAMES = sorted(path.stem for path in Path(package.__path__[0]).glob("0*.py"))
LATER = sorted(path.stem for path in Path(later.__file__).parent.glob("0*.py"))
CONCURRENT = (AddIndexConcurrently, RemoveIndexConcurrently)
HARMLESS = (
    migrations.CreateModel,
    migrations.AlterModelOptions,
    AddConstraintNotValid,
    ValidateConstraint,
    InstallFunctions,
    *CONCURRENT,
)


def fault(operation: Operation) -> str | None:
    """What the code of the release before, or its users, would suffer from."""
    if isinstance(operation, migrations.AddField):
        field = operation.field
        if field.null or field.db_default is not NOT_PROVIDED:
            return None
        return "an INSERT of older code does not name it: give it null=True or a db_default"
    if type(operation) in HARMLESS:
        return None
    return "older code still uses what it changes, or it locks the table for long"


def faults(one: type[migrations.Migration]) -> list[tuple[str, str]]:
    found = [(op.describe(), told) for op in one.operations if (told := fault(op))]
    if any(isinstance(op, CONCURRENT) for op in one.operations) and one.atomic:
        found.append((one.__module__, "no transaction can build an index concurrently"))
    tables = {op.model_name for op in one.operations if isinstance(op, migrations.AddField)}
    if len(tables) > 1:
        found.append((one.__module__, "two tables that it locks may be locked in another order"))
    if not one.atomic:  # what went well is not undone, so it must bear being done again
        found += [
            (
                op.describe(),
                "one that fails half-way cannot be run again: give it its own migration",
            )
            for op in one.operations
            if not isinstance(op, (*CONCURRENT, ValidateConstraint))
        ]
    return found


def migration(name: str) -> type[migrations.Migration]:
    return import_module(f"{package.__name__}.{name}").Migration


@pytest.mark.parametrize("name", [name for name in NAMES if name != FIRST] or [None])
def test_a_migration_after_the_first_adds_only(name):
    if name is None:
        return  # there is none yet
    assert faults(migration(name)) == []


def test_what_the_latest_migration_adds_to_jobs_is_named_in_the_model():
    latest = migration(NAMES[-1]).operations
    fields = [op for op in latest if isinstance(op, migrations.AddField)]
    assert {op.name for op in fields if op.model_name == "job"} == set(Job.added)


def test_the_latest_migration_that_creates_the_functions_creates_those_of_this_code():
    created = [
        (name, op.digest)
        for name in NAMES
        for op in migration(name).operations
        if isinstance(op, InstallFunctions)
    ]
    advice = "The SQL functions have changed: add a migration with InstallFunctions(digest)."
    assert created[-1] == (functions.MIGRATION, functions.digest()), advice


@pytest.mark.parametrize("name", LATER)
def test_the_migrations_of_the_tests_are_as_they_should_be(name):
    one = import_module(f"{later.__name__}.{name}").Migration
    assert faults(one) == []
    one = type("Other", (one,), {"atomic": not one.atomic})
    assert faults(one), "each is atomic or not for a reason"


def test_one_that_changes_two_tables_would_lock_them_against_workers():
    one = import_module(f"{later.__name__}.{LATER[0]}").Migration
    field = models.TextField(null=True)
    more = {"operations": [*one.operations, migrations.AddField("worker", "x", field)]}
    assert faults(type("Other", (one,), more))


@pytest.mark.parametrize(
    "operation",
    [
        migrations.AddField("job", "x", models.IntegerField(default=0)),
        migrations.RemoveField("job", "meta"),
        migrations.RenameField("job", "meta", "x"),
        migrations.AlterField("job", "meta", models.TextField()),
        migrations.AddIndex("job", models.Index("kind", name="x")),
        migrations.AddConstraint("job", models.CheckConstraint(name="x", condition=Q(id__gt=0))),
        migrations.RunSQL("select 1"),
        migrations.DeleteModel("job"),
    ],
    ids=lambda operation: type(operation).__name__,
)
def test_what_older_code_would_suffer_from_is_known(operation):
    assert fault(operation)
