"""A statement that waits for a lock only so long: one message, so nothing can stay open in between."""

from __future__ import annotations

import pytest
from django.db import connection
from psycopg import errors

from django_pgjobs.sessions import Session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=[False, True], ids=["client binding", "server binding"])
def session(request, monkeypatch):
    options = {**connection.settings_dict["OPTIONS"], "server_side_binding": request.param}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    session = Session("default")
    yield session
    session.close()


def test_it_is_one_message_to_the_server(session):
    """Or else a process that is stopped in between would keep what it has locked, for ever."""
    sql = "select now() = statement_timestamp(), current_setting('lock_timeout'), %(n)s"
    assert session.execute(sql, {"n": 1}, patience=0.25) == [(True, "250ms", 1)]
    assert session.execute("show lock_timeout", {}) == [("0",)], "of this statement only"


def test_it_waits_no_longer_than_it_was_told(session, other_session):
    other_session.execute("lock table django_pgjobs_job")
    delete = "delete from django_pgjobs_job returning id"
    with pytest.raises(errors.LockNotAvailable):
        session.execute(delete, {}, patience=0.05)
    other_session.rollback()
    assert session.execute(delete, {}, patience=0.05) == []
