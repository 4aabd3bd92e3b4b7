"""A session of its own prepares what it runs often, and keeps no plan for long."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgjobs import sessions

FIND = "select n from grown where n = %(n)s"


@pytest.fixture
def grown(session):
    """A table that was empty when it was planned for, and of whose growth no statistics tell."""
    session.execute("create table grown (n int primary key) with (autovacuum_enabled = off)", {})
    session.execute("analyze grown", {})
    for n in range(20):
        session.execute(FIND, {"n": n})
    session.execute("insert into grown select generate_series(1, 20000)", {})
    yield session
    session.close()
    session.execute("drop table grown", {})


def plan(session):
    [(name,)] = session.execute(
        "select name from pg_prepared_statements where statement like %(like)s",
        {"like": "select n from grown%"},
    )
    return "\n".join(line for [line] in session.execute(f"explain execute {name}(7)", {}))


def test_what_is_run_often_is_prepared(grown):
    assert "Seq Scan" in plan(grown), "the plan of the empty table"
    assert grown.execute(FIND, {"n": 7}) == [(7,)]


@pytest.mark.parametrize(("threshold", "prepared"), [(None, 0), (0, 1)])
def test_the_project_says_otherwise(monkeypatch, session, threshold, prepared):
    options = {**connection.settings_dict["OPTIONS"], "prepare_threshold": threshold}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    count = "select count(*) from pg_prepared_statements where statement like %(like)s"
    for _ in range(2 if prepared else 20):
        session.execute("select %(n)s::int", {"n": 1})

    assert session.execute(count, {"like": "select $1::int%"}) == [(prepared,)]


def test_a_plan_is_not_kept_for_long(monkeypatch, session, request):
    monkeypatch.setattr(sessions, "_PLANS_KEPT", 0.0)
    assert "Index" in plan(request.getfixturevalue("grown"))


def test_a_table_that_changes_meanwhile_costs_one_connection(grown, other_session):
    """As by a migration that changes a type while workers are at work."""
    other_session.execute("alter table grown alter n type bigint")
    other_session.commit()
    with pytest.raises(sessions.DATABASE_ERRORS, match="cached plan"):
        grown.execute(FIND, {"n": 7})
    grown.close()  # as a worker does after any error
    assert grown.execute(FIND, {"n": 7}) == [(7,)]
