"""`manage.py check` names what is wrong with the project's configuration, by stable ids."""

from __future__ import annotations

import io

import pytest
from django.core.checks import registry as check_registry
from django.core.checks import run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, connections

from django_pgjobs import checks

SQLITE = {
    "default": {"ENGINE": "django.db.backends.postgresql"},
    "sqlite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}


def ids():
    return [message.id for message in run_checks() if message.id.startswith("pgjobs.")]


def test_a_project_without_the_setting_has_no_fault():
    assert ids() == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, []),
        (None, ["pgjobs.E001"]),
        ({"NONE": 1}, ["pgjobs.E002"]),
        ({"POLL": 0}, ["pgjobs.E003"]),
        ({"LEASE": 10, "HEARTBEAT": 5}, ["pgjobs.E004"]),
        ({"LISTEN_DATABASE": "direct"}, ["pgjobs.E006"]),
    ],
    ids=repr,
)
def test_a_fault_of_the_setting_is_an_error_with_its_id(settings, given, expected):
    settings.PGJOBS = given

    assert ids() == expected


def test_both_checks_are_registered_when_the_app_is_installed():
    registered = check_registry.registry.get_checks()

    assert checks.check_settings in registered
    assert checks.check_databases in registered


def test_an_error_says_what_to_do_and_ends_the_command_with_an_error(settings):
    settings.PGJOBS = {"LEASE": 10, "HEARTBEAT": 5}

    with pytest.raises(SystemCheckError) as error:
        call_command("check", stdout=io.StringIO())

    assert "pgjobs.E004" in str(error.value)
    assert "HINT: " in str(error.value)


class JobsOnSqlite:
    def db_for_write(self, model, **hints):
        return "sqlite"


def test_a_jobs_database_that_is_not_postgresql_is_an_error(settings, monkeypatch):
    monkeypatch.setattr(connections, "settings", connections.configure_settings(SQLITE))
    settings.DATABASE_ROUTERS = [JobsOnSqlite()]

    try:
        [error] = checks.check_databases()
    finally:
        del connections["sqlite"]

    assert error.id == "pgjobs.E005"
    assert "sqlite" in error.msg
    assert error.hint


class ClosedDatabase:
    """Any use of it is an error: a check must not need a running server."""

    def __call__(self, execute, sql, params, many, context):
        raise AssertionError(sql)


@pytest.mark.django_db
def test_the_checks_ask_the_database_nothing():
    with connection.execute_wrapper(ClosedDatabase()):
        assert ids() == []
