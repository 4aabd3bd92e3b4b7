"""Which statements of a handler cost its thread the connection."""

from __future__ import annotations

import pytest

from django_pgjobs import leftovers, statements


@pytest.mark.parametrize(
    "sql",
    [
        "set search_path to x",
        "select set_config('search_path', 'x', false)",
        "select set_config('search_path', 'x', true), set_config('search_path', 'x', false)",
        "select pg_advisory_lock(1)",
        "create temp table t ()",
    ],
)
def test_what_outlives_a_transaction_is_noticed(sql):
    assert leftovers._CHANGES_SESSION.search(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "set local search_path to x",
        "select set_config('search_path', 'x', true)",
        pytest.param(statements.NOTIFY, id="the wake-up that an enqueue sends"),
        "select pg_advisory_xact_lock(1)",
    ],
)
def test_what_ends_with_its_transaction_is_not(sql):
    assert not leftovers._CHANGES_SESSION.search(sql)
