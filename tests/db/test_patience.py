"""A statement that waits for a lock only so long: one message, so nothing can stay open in between."""

from __future__ import annotations

import pytest
from django.db import connection
from psycopg import IsolationLevel, errors

from django_pgjobs.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)


CHOICES = {
    "client binding": {"server_side_binding": False},
    "server binding": {"server_side_binding": True},
    "serializable": {"isolation_level": IsolationLevel.SERIALIZABLE},
    "serializable server": {"options": "-c default_transaction_isolation=serializable"},
}


@pytest.fixture(params=CHOICES.values(), ids=CHOICES)
def session(request, monkeypatch):
    options = {**connection.settings_dict["OPTIONS"], **request.param}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    session = Session("default")
    yield session
    session.close()


def test_it_is_one_message_to_the_server(session):
    """Or else a process that is stopped in between would keep what it has locked, for ever."""
    sql = "select now() = statement_timestamp(), current_setting('lock_timeout'), %(n)s"
    assert session.execute(sql, {"n": 1}, patience=0.25) == [(True, "250ms", 1)]
    assert session.execute("show lock_timeout", {}) == [("0",)], "of this statement only"


def test_it_runs_at_read_committed_as_all_others(session):
    show = "show transaction_isolation"
    assert session.execute(show, {}, patience=0.25) == [("read committed",)]
    assert session.execute("select 1", {}, patience=0.25) == [(1,)]
    assert session.execute(show, {}) == [("read committed",)]


def test_it_waits_no_longer_than_it_was_told(session, other_session):
    other_session.execute("lock table django_pgjobs_job")
    delete = "delete from django_pgjobs_job returning id"
    with pytest.raises(errors.LockNotAvailable):
        session.execute(delete, {}, patience=0.05)
    other_session.rollback()
    assert session.execute(delete, {}, patience=0.05) == []
