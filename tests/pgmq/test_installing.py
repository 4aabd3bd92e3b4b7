"""How pgmq comes into a database, and what is left alone."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState
from django.db.migrations.writer import OperationWriter

from django_pgjobs.exceptions import InvalidOption, PgmqMissing
from django_pgjobs.pgmq import Queue, checks, consumers, list_queues
from django_pgjobs.pgmq.operations import CreateQueue, InstallPgmq

LABEL = "django_pgjobs_pgmq"


def run(operation, on=None, *, backwards=False):
    """Run an operation in a migration of its own."""
    with (on or connection).schema_editor() as editor:
        act = operation.database_backwards if backwards else operation.database_forwards
        act(LABEL, editor, ProjectState(), ProjectState())


def value(sql, on=None):
    with (on or connection).cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def execute(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)


@pytest.fixture
def without_pgmq(db):
    execute("drop schema pgmq cascade")


@pytest.fixture
def without_the_wheel(monkeypatch):
    monkeypatch.setitem(sys.modules, "pgmq", None)


VERSION = "select version from pgmq.__pgmq_migrations where name = 'pgmq.sql'"
IS_THERE = "select to_regclass('pgmq.meta') is not null"


def test_the_migration_installs_the_sql_of_the_wheel_and_records_its_version(db):
    assert value(IS_THERE)
    assert value(VERSION) == (files("pgmq") / "sql" / "VERSION").read_text().strip()
    assert LABEL in {label for label, _ in MigrationLoader(connection).applied_migrations}


def test_it_goes_and_comes_back_with_the_migration(db):
    call_command("migrate", LABEL, "zero", verbosity=0)
    assert not value("select to_regnamespace('pgmq') is not null")

    call_command("migrate", LABEL, verbosity=0)
    Queue("emails").create()


def test_where_pgmq_is_nothing_happens(db):
    Queue("emails").create()

    run(InstallPgmq())

    assert [queue.queue_name for queue in list_queues()] == ["emails"]


def test_it_is_not_removed_while_there_are_queues(db):
    Queue("emails").create()

    with pytest.raises(IrreversibleError, match="no queue when it is removed, got emails"):
        run(InstallPgmq(), backwards=True)


def test_a_pgmq_that_others_installed_is_not_removed(db):
    execute("comment on schema pgmq is null")

    run(InstallPgmq(), backwards=True)

    assert value(IS_THERE)


def test_without_extension_and_wheel_it_is_said_what_to_do(without_pgmq, without_the_wheel):
    with pytest.raises(PgmqMissing, match=r"pip install 'django-pgjobs\[pgmq\]'"):
        run(InstallPgmq())


def test_where_the_routers_do_not_allow_it_nothing_happens(without_pgmq, settings):
    class Router:
        def allow_migrate(self, _db, app_label, **_hints):
            return app_label != LABEL

    settings.DATABASE_ROUTERS = [Router()]
    for operation in (InstallPgmq(), CreateQueue("emails")):
        run(operation)
        run(operation, backwards=True)

    assert not value(IS_THERE)


def test_another_database_than_postgresql_is_left_alone(monkeypatch, django_assert_num_queries, db):
    monkeypatch.setattr(connection, "vendor", "sqlite")

    with django_assert_num_queries(0):
        for operation in (InstallPgmq(), CreateQueue("emails")):
            operation.database_forwards(LABEL, editor(), ProjectState(), ProjectState())


def editor():
    return connection.SchemaEditorClass(connection)


@pytest.fixture
def owner(db):
    """A database of a role that is nothing but its owner; a connection to it."""
    name = f"pgmq_owner_{secrets.token_hex(4)}"
    with psycopg.connect(os.environ["PGJOBS_TEST_URL"], autocommit=True) as admin:
        admin.execute(f"create role {name} login nosuperuser password '{name}'")
        admin.execute(f"create database {name} owner {name}")
        wrapper = connection.copy()
        wrapper.settings_dict = {
            **connection.settings_dict,
            "NAME": name,
            "USER": name,
            "PASSWORD": name,
        }
        try:
            with closing(wrapper):
                yield wrapper
        finally:
            admin.execute(f"drop database {name} with (force)")
            admin.execute(f"drop role {name}")


def test_the_owner_of_a_database_can_install_it_without_being_superuser(owner):
    run(InstallPgmq(), owner)
    run(CreateQueue("emails"), owner)

    assert value("select pgmq.send('emails', '1'::jsonb)", owner) == 1
    run(CreateQueue("emails"), owner, backwards=True)
    run(InstallPgmq(), owner, backwards=True)
    assert not value(IS_THERE, owner)


@pytest.fixture
def extension(without_pgmq):
    """The files of pgmq's extension, on a server that can be told where they are."""
    if connection.pg_version < 18_00_00:
        pytest.skip("extension_control_path is of PostgreSQL 18")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server may be another user
        (folder / "extension").mkdir()
        (folder / "extension" / "pgmq.control").write_text(
            "default_version = '1.13.0'\nschema = 'pgmq'\nrelocatable = false\nsuperuser = false\n"
        )
        sql = (files("pgmq") / "sql" / "pgmq.sql").read_text()
        (folder / "extension" / "pgmq--1.13.0.sql").write_text(sql)
        execute(f"set local extension_control_path = '{folder}:$system'")
        if not value("select exists (select from pg_available_extensions where name = 'pgmq')"):
            pytest.skip("the server is on another machine")
        yield


def test_the_extension_of_the_server_comes_first(extension):
    run(InstallPgmq())

    assert value("select extversion from pg_extension where extname = 'pgmq'") == "1.13.0"
    Queue("emails").create()
    Queue("emails").send(1)
    assert Queue("emails").drop()


def test_an_extension_is_needed_for_no_wheel_and_is_left_where_it_is(extension, without_the_wheel):
    run(InstallPgmq())

    run(InstallPgmq(), backwards=True)

    assert value(IS_THERE)
    assert checks.check_installation(databases=["default"]) == []


# ---------------------------------------------------------------------------------------- queues


@pytest.mark.parametrize("unlogged", [False, True])
def test_a_migration_can_create_a_queue(db, unlogged):
    operation = CreateQueue("emails", unlogged=unlogged)
    run(operation)
    run(operation)

    assert [(q.queue_name, q.is_unlogged) for q in list_queues()] == [("emails", unlogged)]
    run(operation, backwards=True)
    assert list_queues() == []


def test_a_migration_writes_its_operations_into_its_file():
    text, imports = OperationWriter(CreateQueue("emails", unlogged=True), indentation=0).serialize()

    scope = {}
    exec("\n".join(imports) + f"\noperation = {text.rstrip(',')}", scope)  # noqa: S102
    assert vars(scope["operation"])["name"] == "emails"
    assert scope["operation"].unlogged
    assert CreateQueue("emails").deconstruct() == ("CreateQueue", ["emails"], {})
    assert CreateQueue("emails").migration_name_fragment == "queue_emails"
    assert [op.describe() for op in (InstallPgmq(), CreateQueue("emails"))] == [
        "Install pgmq",
        "Create the pgmq queue emails",
    ]


def test_a_name_that_pgmq_cannot_have_is_refused_in_the_migration():
    with pytest.raises(InvalidOption, match="at most 47 bytes"):
        CreateQueue("x" * 48)


# ---------------------------------------------------------------------------------------- checks


def test_the_check_asks_no_server_unless_it_is_named(
    django_assert_num_queries, without_pgmq, without_the_wheel
):
    with django_assert_num_queries(0):
        assert checks.check_installation() == []
        assert checks.check_installation(databases=["other"]) == []


def test_a_pgmq_that_cannot_be_installed_is_told_before_the_migration(
    without_pgmq, without_the_wheel
):
    [error] = checks.check_installation(databases=["default"])

    assert error.id == "pgjobs.E061"
    assert "the database 'default'" in error.msg
    assert error.hint.startswith("Run pip install 'django-pgjobs[pgmq]'")


def test_with_the_wheel_alone_nothing_is_told(without_pgmq):
    assert checks.check_installation(databases=["default"]) == []


def test_with_pgmq_itself_nothing_is_told(db, without_the_wheel):
    assert checks.check_installation(databases=["default"]) == []


def test_another_database_than_postgresql_is_told(monkeypatch, db):
    assert checks.check_database() == []
    monkeypatch.setattr(connection, "vendor", "sqlite")

    [error] = checks.check_database()
    assert error.id == "pgjobs.E060"
    assert "got sqlite for 'default'" in error.msg
    assert checks.check_installation(databases=["default"]) == []


# --------------------------------------------------------------------------------- who does without


def python(code):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_without_the_app_a_project_has_nothing_of_it():
    done = python(
        "import sys; sys.modules['pgmq'] = None\n"
        "import pkgutil, importlib, django\n"
        "from django.conf import settings\n"
        "from tests.settings import DATABASES\n"
        "settings.configure(INSTALLED_APPS=['django.contrib.contenttypes', 'django_pgjobs'],\n"
        "    DATABASES=DATABASES, USE_TZ=True)\n"
        "django.setup()\n"
        "import django_pgjobs\n"
        "from django.apps import apps\n"
        "for found in pkgutil.iter_modules(django_pgjobs.__path__, 'django_pgjobs.'):\n"
        "    if not found.name.endswith(('.pgmq', '.admin')):\n"
        "        importlib.import_module(found.name)\n"
        "import django_pgjobs.management.commands.runjobs\n"
        "assert not any(name.startswith('django_pgjobs.pgmq') for name in sys.modules)\n"
        "assert [c.label for c in apps.get_app_configs()] == ['contenttypes', 'django_pgjobs']\n"
    )

    assert done.returncode == 0, done.stderr


def test_a_consumer_that_never_runs_for_the_app_is_not_listed_is_told():
    done = python(
        "import django\n"
        "from django.conf import settings\n"
        "from django.core.checks import run_checks\n"
        "from tests.settings import DATABASES\n"
        "settings.configure(INSTALLED_APPS=['django.contrib.contenttypes', 'django_pgjobs'],\n"
        "    DATABASES=DATABASES, USE_TZ=True)\n"
        "django.setup()\n"
        "from django_pgjobs.pgmq import Queue, consumer\n"
        "Queue('emails')\n"
        "assert run_checks() == []\n"
        "consumer('emails')(print)\n"
        "consumer('clicks')(print)\n"
        "[error] = run_checks()\n"
        "print(error.id, error.msg, error.hint, sep='\\n')\n"
    )

    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == "pgjobs.E062"
    assert "consumers of clicks, emails" in said[1]
    assert said[2].startswith("Add 'django_pgjobs.pgmq' to INSTALLED_APPS")


def test_with_the_app_nothing_is_told_of_consumers(monkeypatch):
    monkeypatch.setattr(consumers, "_consumers", {})
    consumers.consumer("emails")(print)

    assert consumers.check_app() == []


def test_queues_work_where_pgmq_is_and_the_app_is_not_listed(owner):
    run(InstallPgmq(), owner)
    settings = {
        k: owner.settings_dict[k] for k in ("ENGINE", "HOST", "PORT", "NAME", "USER", "PASSWORD")
    }
    done = python(
        "import django\n"
        "from django.conf import settings\n"
        f"settings.configure(INSTALLED_APPS=['django_pgjobs'], DATABASES={{'default': {settings!r}}})\n"
        "django.setup()\n"
        "from django_pgjobs.pgmq import Queue, list_queues\n"
        "from django_pgjobs.pgmq.models import QueueRecord\n"
        "assert QueueRecord._meta.app_label == 'django_pgjobs_pgmq'\n"
        "Queue('emails').create()\n"
        "Queue('emails').send({'a': 1})\n"
        "assert Queue('emails').pop()[0].message == {'a': 1}\n"
        "assert [str(q) for q in list_queues()] == ['emails']\n"
    )

    assert done.returncode == 0, done.stderr
