"""A pooler that lends its sessions by the transaction is known for one, others are not."""

from __future__ import annotations

import os
from contextlib import closing

import pytest
from django.core import checks as django_checks
from django.core.management import call_command
from django.db import connections

from django_pgjobs import checks, poolers
from django_pgjobs.sessions import connect
from tests.poolers import Pooler, needs_pgbouncer

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

POOLERS = {
    "the last one back goes first": {},
    "in turn": {"min_pool_size": "2", "server_round_robin": "1"},
    "three in turn": {"size": 3, "min_pool_size": "3", "server_round_robin": "1"},
    "one session": {"size": 1},
    "by the statement": {"mode": "statement"},
}
LENT = ["pgjobs.W001", "pgjobs.W002"]


@pytest.fixture
def pooler(request):
    options = {"size": 2, **getattr(request, "param", {})}
    with Pooler(os.environ["PGJOBS_TEST_URL"], **options) as pooler:
        yield pooler


@pytest.fixture
def lead(monkeypatch):
    """Have an alias lead through a pooler, with these settings."""

    def lead(alias, pooler, **settings):
        for name, value in {**pooler.address, **settings}.items():
            monkeypatch.setitem(connections.settings[alias], name, value)

    yield lead
    connections.close_all()  # what a check has opened leads there


def lent() -> bool:
    with closing(connect("default")) as wrapper:
        return poolers.is_lent(wrapper)


@needs_pgbouncer
@pytest.mark.parametrize("pooler", POOLERS.values(), ids=POOLERS, indirect=True)
def test_lent_sessions_are_known(lead, pooler, monkeypatch):
    lead("default", pooler)
    for between in range(2):  # an odd number of transactions between two looks, and an even one

        def busy(alias, between=between):
            wrapper = connect(alias)
            for _ in range(between):
                wrapper.connection.execute("select 1")
            return wrapper

        monkeypatch.setattr(poolers, "connect", busy)
        assert lent()


@needs_pgbouncer
@pytest.mark.parametrize("pooler", [{"mode": "session"}], indirect=True)
def test_a_session_lent_for_all_its_time_is_one_s_own(lead, pooler):
    lead("default", pooler)
    assert not lent()


def test_a_direct_connection_is_one_s_own(monkeypatch):
    opened = []
    monkeypatch.setattr(poolers, "connect", opened.append)
    assert not lent()
    assert not opened, "that costs no further connection"


# --------------------------------------------------------------------------------- the checks


def found(*databases: str) -> list[str]:
    messages = django_checks.run_checks(databases=databases)
    assert all(message.hint for message in messages if message.id.startswith("pgjobs."))
    return sorted(message.id for message in messages if message.id.startswith("pgjobs."))


@pytest.fixture
def pooled(lead, pooler):
    """The database of the jobs is reached through a pooler in transaction mode."""

    def pooled(**settings):
        lead("default", pooler, **settings)

    return pooled


@pytest.fixture
def lead_to_the_jobs(monkeypatch):
    def lead(alias):
        name = connections.settings["default"]["NAME"]
        monkeypatch.setitem(connections.settings[alias], "NAME", name)

    return lead


def test_a_direct_database_has_no_fault(monkeypatch):
    monkeypatch.setitem(connections.settings["default"], "OPTIONS", {"prepare_threshold": 5})
    assert found("default", "other") == []


@needs_pgbouncer
def test_what_a_pooler_breaks_is_a_warning(pooled):
    pooled()
    assert found("default") == LENT
    assert found("other") == []
    assert found() == [], "without --database the server is not asked"


@needs_pgbouncer
def test_nothing_is_wrong_where_all_is_said(pooled, settings, lead_to_the_jobs):
    pooled(DISABLE_SERVER_SIDE_CURSORS=True, OPTIONS={"pool": True, "server_side_binding": True})
    settings.PGJOBS = {"LISTEN_DATABASE": "other"}
    lead_to_the_jobs("other")
    assert found("default", "other") == []
    settings.PGJOBS = {"NOTIFY": False}
    assert found("default", "other") == []


@needs_pgbouncer
def test_a_way_around_the_pooler_that_leads_through_it_is_a_warning(
    pooled, lead, pooler, settings, lead_to_the_jobs
):
    pooled(DISABLE_SERVER_SIDE_CURSORS=True)
    lead("other", pooler)
    settings.PGJOBS = {"LISTEN_DATABASE": "other"}
    lead_to_the_jobs("other")
    assert found("default", "other") == ["pgjobs.W001"]
    assert found("default") == [], "the other one was not to be asked"


@needs_pgbouncer
@pytest.mark.parametrize(
    ("pooler", "options", "expected"),
    [
        ({}, {"prepare_threshold": 5}, ["pgjobs.W003"]),
        ({}, {"prepare_threshold": None}, []),
        ({}, {"assume_role": "postgres"}, ["pgjobs.W004"]),
        ({"ignore_startup_parameters": "options"}, {"options": "-c x.y=1"}, ["pgjobs.W004"]),
    ],
    indirect=["pooler"],
)
def test_what_would_stay_in_a_session_is_a_warning(pooled, options, expected):
    pooled(OPTIONS=options)
    assert found("default") == [*LENT, *expected]


@needs_pgbouncer
def test_a_warning_goes_out_with_the_command_and_can_be_silenced(pooled, settings, capfd):
    pooled()
    call_command("check", databases=["default"])
    assert "HINT: Set DISABLE_SERVER_SIDE_CURSORS" in capfd.readouterr().err
    settings.SILENCED_SYSTEM_CHECKS = LENT
    call_command("check", databases=["default"])
    assert "HINT" not in capfd.readouterr().err


def test_without_a_server_that_is_all_and_with_wrong_settings_others_tell(monkeypatch, settings):
    settings.PGJOBS = {"POLL": 0}
    assert checks.check_poolers(databases=["default"]) == []
    settings.PGJOBS = {}
    monkeypatch.setitem(connections.settings["default"], "PORT", "1")
    assert [one.id for one in checks.check_poolers(databases=["default"])] == ["pgjobs.W013"]
