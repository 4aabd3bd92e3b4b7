"""Every system check: what brings it about, and that a good project has none."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, connections, transaction
from django.db.migrations.recorder import MigrationRecorder
from psycopg import IsolationLevel

from django_pgjobs import Limit, checks, conf, functions, job, poolers, schema, symptoms
from django_pgjobs.models import Job, Schedule
from django_pgjobs.sessions import execute_on_django
from tests.contract import pages
from tests.processes import ROOT

pytestmark = pytest.mark.django_db(databases=["default", "other"])

BOTH = ["default", "other"]


def found(*databases: str) -> dict[str, str]:
    """What is told of this app, by id."""
    messages = run_checks(databases=databases or BOTH, include_deployment_checks=True)
    ours = [message for message in messages if message.id.startswith("pgjobs.")]
    for message in ours:
        assert message.hint, f"{message.id} must say what to do."
        assert message.hint[-1] in ".?", message.hint
        assert message.msg.endswith("."), message.msg
    return {message.id: message.msg for message in ours}


class Router:
    """Gives these aliases for writing models, by their names."""

    def __init__(self, **aliases: str) -> None:
        self.aliases = aliases

    def db_for_write(self, model, **hints):
        return self.aliases.get(model.__name__, self.aliases.get("others"))


class ForbidsMigrations:
    def allow_migrate(self, db, app_label, **hints):
        return False


class World:
    """What a test changes, all of it undone at its end."""

    def __init__(self, settings, monkeypatch):
        self.settings = settings
        self.monkeypatch = monkeypatch

    def pgjobs(self, **values):
        self.settings.PGJOBS = values

    def database(self, alias="default", **values):
        for name, value in values.items():
            self.monkeypatch.setitem(connections.settings[alias], name, value)
            self.monkeypatch.setitem(connections[alias].settings_dict, name, value)

    def sqlite(self):
        """Have the alias "other" be none of PostgreSQL."""
        self.monkeypatch.setattr(connections["other"], "vendor", "sqlite", raising=False)

    def pooled(self, **values):
        self.monkeypatch.setattr(poolers, "is_lent", lambda _connection: True)
        self.database(**values)

    def sql(self, statement):
        with connection.cursor() as cursor:
            cursor.execute(statement)


@pytest.fixture
def world(settings, monkeypatch, kinds):
    return World(settings, monkeypatch)


def limited_by_transaction(world):
    world.pgjobs(QUEUES={"ledger": {"claim": "transaction"}})
    job(kind="limited", queue="ledger", concurrency=Limit(1))(lambda: None)


def jobs_on_sqlite(world):
    world.sqlite()
    world.settings.DATABASE_ROUTERS = [Router(others="other")]


def listens_on_sqlite(world):
    world.sqlite()
    world.pgjobs(LISTEN_DATABASE="other")


def by_hand(**columns):
    return lambda _world: Schedule.objects.create(**{"name": "s", "cron": "0 3 * * *", **columns})


CHECKS = {
    "pgjobs.E001": lambda w: setattr(w.settings, "PGJOBS", [1]),
    "pgjobs.E002": lambda w: w.pgjobs(LAESE=1),
    "pgjobs.E003": lambda w: w.pgjobs(POLL=0),
    "pgjobs.E004": lambda w: w.pgjobs(LEASE=30, HEARTBEAT=15),
    "pgjobs.E005": jobs_on_sqlite,
    "pgjobs.E006": lambda w: w.pgjobs(LISTEN_DATABASE="nowhere"),
    "pgjobs.E007": lambda w: w.pgjobs(QUEUES={"a": {"claim": "transaction", "concurrency": 1}}),
    "pgjobs.E008": listens_on_sqlite,
    "pgjobs.E009": limited_by_transaction,
    "pgjobs.E010": lambda w: setattr(w.settings, "DATABASE_ROUTERS", [Router(Worker="other")]),
    "pgjobs.E011": lambda w: setattr(w.settings, "DATABASE_ROUTERS", [ForbidsMigrations()]),
    "pgjobs.W001": lambda w: w.pooled(),
    "pgjobs.W002": lambda w: w.pooled(),
    "pgjobs.W003": lambda w: w.pooled(OPTIONS={"prepare_threshold": 5}),
    "pgjobs.W004": lambda w: w.pooled(OPTIONS={"options": "-c statement_timeout=0"}),
    "pgjobs.W005": by_hand(kind="gone"),
    "pgjobs.W006": by_hand(kind="add"),
    "pgjobs.W007": lambda w: w.sql("set local transaction_isolation = 'serializable'"),
    "pgjobs.W008": lambda w: w.pgjobs(LISTEN_DATABASE="other"),
    "pgjobs.W009": lambda w: w.database(AUTOCOMMIT=False),
    "pgjobs.W010": lambda w: MigrationRecorder(connection).record_unapplied(
        "django_pgjobs", "0001_initial"
    ),
    "pgjobs.W011": lambda w: w.sql("drop index pgjobs_job_claim"),
    "pgjobs.W012": lambda w: setattr(w.settings, "DEBUG", True),
    "pgjobs.W013": lambda w: w.database(PORT="1"),
    "pgjobs.W014": lambda w: w.pgjobs(DRAIN_TOKEN="ab" * 16),
    "pgjobs.W015": lambda w: setattr(
        w.settings, "ROOT_URLCONF", "tests.acceptance.test_draining_view"
    ),
    "pgjobs.W016": lambda w: w.sql(f"drop function {functions.functions()[-1].signature}"),
}


def test_a_good_project_has_no_fault():
    assert found() == {}


def test_every_check_of_the_reference_is_brought_about_below():
    rows = pages.table("docs/reference/checks.md", "System checks")
    folder = Path(checks.__file__).parent
    sources = [
        *folder.glob("*.py"),
        Path(conf.__file__),
    ]  # a backend's own checks are told by its tests
    told = {i for path in sources for i in re.findall(r'"(pgjobs\.\w+)"', path.read_text())}
    assert [row[0] for row in rows if row[0] in told] == list(CHECKS)
    assert told == set(CHECKS)


def test_a_token_that_is_another_secret_is_told(world):
    world.pgjobs(DRAIN_TOKEN="x" + world.settings.SECRET_KEY.replace(" ", "-"))
    assert found() == {}
    world.settings.SECRET_KEY = conf.get().drain_token
    assert "SECRET_KEY" in found()["pgjobs.W014"]


@pytest.mark.parametrize("check", CHECKS)
def test_a_fault_is_told_under_its_id(world, check):
    CHECKS[check](world)

    told = found()

    assert check in told
    others = {"pgjobs.W001", "pgjobs.W002"} if check[7:] in ("W001", "W002", "W003", "W004") else ()
    others = {"pgjobs.E060"} if check == "pgjobs.E005" else others  # pgmq is on that database too
    assert set(told).difference(others) <= {check}


# ---------------------------------------------------------------------------------- the settings

WRONG = {
    "MAX_ATTEMPTS": [0, 32_768, "5", None, 1.5, True],
    "LEASE": [0, -1, "60", None, float("nan"), float("inf"), True],
    "HEARTBEAT": [0, "15", None],
    "POLL": [0, "1", None],
    "NOTIFY": [1, "yes", None],
    "LISTEN_DATABASE": [1, b"default"],
    "SHUTDOWN_TIMEOUT": [0, "30", None],
    "MAX_PAYLOAD_BYTES": [0, 2**28 + 1, "1", None],
    "KEEP_DONE": [-1, "7 days", float("nan")],
    "KEEP_FAILED": [-1, "7 days"],
    "KEEP_CANCELLED": [-1, "7 days"],
    "QUEUES": [
        *(None, ["mail"], {"mail": None}, {"": {}}, {1: {}}),
        *({"a b": {}}, {"x" * 64: {}}, {"a\0": {}}),
        *({"mail": {"claim": "row"}}, {"mail": {"concurrency": 0}}, {"mail": {"rate": 5}}),
    ],
    "SECRET_KEYS": ["(", None, 1],
    "DRAIN_TOKEN": ["", "short", "x " * 20, b"x" * 32, 1],
}


def test_wrong_values_are_given_for_every_setting():
    assert set(WRONG) == set(conf.KEYS)


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG.items() for value in values], ids=repr
)
def test_a_wrong_value_of_a_setting_is_an_error_that_names_it(settings, key, value):
    settings.PGJOBS = {key: value}
    told = found()
    assert list(told) == ["pgjobs.E003"]
    assert key in told["pgjobs.E003"]
    assert ", got" in told["pgjobs.E003"]


# ------------------------------------------------------------------------------------ the server


def test_a_level_of_isolation_in_the_options_counts_too(transactional_db, monkeypatch):
    fresh = connection.copy()
    fresh.settings_dict["OPTIONS"] = {"isolation_level": IsolationLevel.SERIALIZABLE}
    monkeypatch.setattr(connections._connections, "default", fresh)
    try:
        assert "SERIALIZABLE" in found()["pgjobs.W007"]
    finally:
        fresh.close()


def test_listening_on_the_same_database_by_another_way_is_well(world):
    world.pgjobs(LISTEN_DATABASE="other")
    world.database("other", NAME=connection.settings_dict["NAME"])
    assert found() == {}


def test_where_listening_leads_is_asked_only_if_both_databases_are_named(world):
    world.pgjobs(LISTEN_DATABASE="other")
    assert found("default") == found("other") == {}


def test_an_index_whose_building_failed_is_told_with_how_to_build_it_anew(world):
    world.sql(
        "update pg_index set indisvalid = false where indexrelid = 'pgjobs_job_claim'::regclass"
    )
    [message] = [m for m in run_checks(databases=["default"]) if m.id == "pgjobs.W011"]
    assert message.hint == "REINDEX INDEX CONCURRENTLY pgjobs_job_claim."


@pytest.mark.parametrize("asked", ["ISOLATION", "PLACE", "READS_MIGRATIONS"])
def test_a_server_that_refuses_to_say_spoils_no_check(world, monkeypatch, asked):
    world.pgjobs(LISTEN_DATABASE="other")
    world.database("other", NAME=connection.settings_dict["NAME"])
    monkeypatch.setattr(symptoms, asked, "select not_to_be_had()")
    with transaction.atomic():
        assert found() == {}
        transaction.set_rollback(True)


def test_schedules_that_cannot_be_read_spoil_no_check(world):
    world.sql("alter table django_pgjobs_schedule rename column tz to renamed")
    with transaction.atomic():
        assert "pgjobs.W006" not in found()
        transaction.set_rollback(True)


def test_migrate_is_not_told_what_it_is_about_to_do(world, monkeypatch):
    CHECKS["pgjobs.W010"](world)
    assert found()["pgjobs.W010"].endswith("applied to 'default', got 0001_initial unapplied.")
    monkeypatch.setattr(sys, "argv", ["manage.py", "migrate"])
    assert found() == {}


def test_migrations_that_this_code_does_not_know_are_those_of_a_later_release():
    MigrationRecorder(connection).record_applied("django_pgjobs", "0002_later")
    assert found() == {}


def test_a_role_that_may_not_read_what_is_applied_is_told_nothing_of_it(world):
    CHECKS["pgjobs.W010"](world)
    name = f"pgjobs_{secrets.token_hex(4)}"
    world.sql(f"create role {name}; set local role {name}")
    assert schema.missing_migrations(execute_on_django("default")) == []


def test_a_project_without_migrations_misses_none(settings):
    settings.MIGRATION_MODULES = {"django_pgjobs": None}
    MigrationRecorder(connection).record_unapplied("django_pgjobs", "0001_initial")
    assert found() == {}


UNREACHABLE = [{"PORT": "1"}, {"NAME": "pgjobs_nowhere"}]


@pytest.mark.parametrize("values", UNREACHABLE, ids=str)
def test_a_server_that_cannot_be_asked_is_told_where_its_database_is_named(world, values):
    world.database("default", **values)
    connection.close()
    assert list(found("default")) == ["pgjobs.W013"]
    assert found("other") == {}
    assert run_checks() == []


def test_in_a_pipeline_no_server_is_a_failure_and_for_others_a_warning(world, capsys):
    world.database("default", PORT="1")
    connection.close()
    with pytest.raises(SystemCheckError, match="must be reachable, got: connection"):
        call_command("check", databases=["default"], fail_level="WARNING")
    call_command("check", databases=["default"])  # as migrate asks
    assert "pgjobs.W013" in capsys.readouterr().err


# ------------------------------------------------------------------------------------ the order

CHECK = """
import django, sys
from django.conf import settings
from tests import settings as ours
others = [app for app in ours.INSTALLED_APPS if app != "django_pgjobs"]
place = int(sys.argv[1])
settings.configure(**{k: getattr(ours, k) for k in dir(ours) if k.isupper() and k != "INSTALLED_APPS"},
    INSTALLED_APPS=[*others[:place], "django_pgjobs", *others[place:]])
django.setup()
from django.core.checks import run_checks
from django_pgjobs import registry
print(len(run_checks()), "noop" in registry.kinds())
"""


@pytest.mark.parametrize("place", ["0", "99"])
def test_the_place_of_the_app_among_others_does_not_matter(place):
    ended = subprocess.run(
        [sys.executable, "-c", CHECK, place],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.stdout.split() == ["0", "True"], ended.stderr


def test_none_of_the_checks_of_the_project_asks_a_server(django_assert_num_queries):
    with django_assert_num_queries(0):
        run_checks()
    assert Job.objects.count() == 0
