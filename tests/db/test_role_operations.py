"""Grants and row security as operations of a migration, forwards and backwards."""

from __future__ import annotations

import pytest
from django.db import ProgrammingError, connection, transaction
from django.db.migrations.state import ProjectState
from django.db.migrations.writer import OperationWriter

from django_pgjobs import rights, roles
from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.operations import EnableRowLevelSecurity, GrantRoles
from django_pgjobs.roles import PRIVILEGES, TABLES
from tests.app.jobs import noop
from tests.db import rows
from tests.roles import Role, execute, sql

pytestmark = pytest.mark.django_db


def run(operation, *, backwards=False):
    """Run an operation in a migration of another app."""
    with connection.schema_editor() as editor:
        act = operation.database_backwards if backwards else operation.database_forwards
        act("shop", editor, ProjectState(), ProjectState())


@pytest.mark.parametrize("part", PRIVILEGES)
def test_a_migration_grants_and_takes_back(part):
    role = Role()
    operation = GrantRoles(**{part: role.name})
    run(operation)
    run(operation)
    with role.assumed():
        assert rights.standing(execute, part).missing == []
    run(operation, backwards=True)
    with role.assumed():
        assert rights.standing(execute, part).missing == [*map(str, PRIVILEGES[part])]


@pytest.mark.parametrize("part", PRIVILEGES)
def test_a_migration_hides_the_tables_and_shows_them_again(part):
    noop.enqueue()
    role, other = Role(part), Role()
    for table in TABLES:
        sql(f"grant select on {table} to {other.name}")
    run(EnableRowLevelSecurity(**{part: [role.name]}))
    with role.assumed():
        assert rights.standing(execute, part).missing == []
        assert len(rows.execute("select id from django_pgjobs_job", {})) == 1
    with other.assumed():
        assert rows.execute("select id from django_pgjobs_job", {}) == []
    run(EnableRowLevelSecurity(**{part: [role.name]}), backwards=True)
    with other.assumed():
        assert len(rows.execute("select id from django_pgjobs_job", {})) == 1
    assert rows.execute("select from pg_policies where tablename like 'django_pgjobs%%'", {}) == []


def test_what_row_security_says_nothing_of_is_taken_from_all_but_the_owner():
    noop.enqueue()
    producer, other = Role("producer"), Role()
    for who in (other.name, producer.name, "public"):
        sql(f"grant all on table {', '.join(TABLES)} to {who}")
        sql(f"grant all on sequence {producer.place.sequence} to {who}")
    run(EnableRowLevelSecurity(producer=producer.name))
    with producer.assumed():
        noop.enqueue()
    for role in (producer, other):
        for act in (
            "truncate django_pgjobs_job",
            f"select setval('{role.place.sequence}', 1)",
            "create trigger spy after insert on django_pgjobs_job execute function suppress_redundant_updates_trigger()",
        ):
            with (
                role.assumed(),
                pytest.raises(ProgrammingError, match="permission denied"),
                transaction.atomic(),
            ):
                sql(act)
    with other.assumed():
        assert rows.execute("select id from django_pgjobs_job", {}) == []


def test_roles_that_two_migrations_name_are_shown_and_hidden_apart():
    noop.enqueue()
    first, second = Role("viewer"), Role("viewer")
    operations = [EnableRowLevelSecurity(viewer=role.name) for role in (first, second)]
    for operation in operations:
        run(operation)
    for role in (first, second):
        with role.assumed():
            assert rights.standing(execute, "viewer").missing == []
    run(operations[1], backwards=True)
    with first.assumed():
        assert len(rows.execute("select id from django_pgjobs_job", {})) == 1
    with second.assumed():
        assert rows.execute("select id from django_pgjobs_job", {}) == []
        assert rights.standing(execute, "viewer").by_row


def test_a_role_that_the_server_has_not_is_refused_before_anything_is_granted():
    role = Role()
    for operation in (GrantRoles, EnableRowLevelSecurity):
        with pytest.raises(
            InvalidOption, match=r"worker must be a role of the server, got 'gone_away'"
        ):
            run(operation(producer=role.name, worker="gone_away"))
    with role.assumed():
        assert len(rights.standing(execute, "producer").missing) == 3


def test_a_role_that_was_dropped_meanwhile_hinders_nothing():
    kept, gone = Role(), Role()
    operations = [
        klass(producer=[kept.name, gone.name], worker=gone.name)
        for klass in (GrantRoles, EnableRowLevelSecurity)
    ]
    for operation in operations:
        run(operation)
    sql(f"drop owned by {gone.name}", f"drop role {gone.name}")
    for operation in reversed(operations):
        run(operation, backwards=True)
    assert rows.execute("select from pg_policies where tablename like 'django_pgjobs%%'", {}) == []
    with (
        kept.assumed(),
        pytest.raises(ProgrammingError, match="permission denied"),
        transaction.atomic(),
    ):
        noop.enqueue()


def test_where_the_routers_do_not_allow_it_or_there_is_no_postgresql_nothing_happens(
    settings, monkeypatch
):
    class Router:
        def allow_migrate(self, _db, app_label, **_hints):
            return app_label != "django_pgjobs"

    operation = GrantRoles(producer="gone_away")
    settings.DATABASE_ROUTERS = [Router()]
    run(operation)
    run(operation, backwards=True)
    settings.DATABASE_ROUTERS = []
    monkeypatch.setattr(connection, "vendor", "sqlite")
    operation.database_forwards("shop", connection.SchemaEditorClass(connection), None, None)


def test_a_migration_writes_them_into_its_file():
    operation = GrantRoles(producer="web", worker=["jobs", "cron"])
    text, imports = OperationWriter(operation, indentation=0).serialize()
    scope = {}
    exec("\n".join(imports) + f"\noperation = {text.rstrip(',')}", scope)  # noqa: S102
    assert scope["operation"].roles == {"producer": ["web"], "worker": ["jobs", "cron"]}
    assert scope["operation"].deconstruct() == operation.deconstruct()
    both = [operation, EnableRowLevelSecurity(viewer="staff")]
    assert [one.describe() for one in both] == [
        "Grant what they need for jobs to web, jobs, cron",
        "Hide the tables of jobs from all but their owner and staff",
    ]
    assert [one.migration_name_fragment for one in both] == [
        "grant_roles_of_jobs",
        "hide_tables_of_jobs",
    ]


@pytest.mark.parametrize("names", [7, "", ["web", None], "x" * 64, "a\0b", ["web", ["b"]]])
def test_what_is_no_name_is_refused_as_it_is_written(names):
    with pytest.raises(InvalidOption, match="producer must be the name of a role"):
        GrantRoles(producer=names)


def test_at_least_one_role_is_named():
    with pytest.raises(InvalidOption, match="must name at least one role, got none"):
        EnableRowLevelSecurity(worker=[])
    assert roles.quoted('a"b') == '"a""b"'
