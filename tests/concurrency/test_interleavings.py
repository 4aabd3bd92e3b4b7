"""Every pair of writers on one job, in every order that two transactions can take.

The second one begins while the first has written and not committed; then the first commits, rolls back
or dies, or the second commits first; or the second begins with a snapshot from before the first.
"""

from __future__ import annotations

from itertools import product

import pytest
from django.db import DatabaseError, connection

from tests import audit
from tests.concurrency.actors import ACTORS, EXPECTED, ROW, Case, prepare
from tests.concurrency.hand_session import (
    READ_COMMITTED,
    REPEATABLE_READ,
    HandSession,
    is_serialization_failure,
)

pytestmark = pytest.mark.newest

ENDINGS = ("commits", "commits last", "rolls back", "dies", "commits before the other begins")
ORDERS = list(product((READ_COMMITTED, REPEATABLE_READ), ENDINGS))
OPENINGS = [
    pytest.param(state, first, id=f"{state}: {first}") for state in ROW for first in EXPECTED[state]
]


@pytest.mark.parametrize(("state", "first"), OPENINGS)
def test_two_writers_leave_what_one_after_the_other_leaves(sessions, state, first):
    later = [
        actor
        for actor in ACTORS
        if actor in EXPECTED[state] or actor in EXPECTED[EXPECTED[state][first]]
    ]
    for order, second in product(ORDERS, later):
        case = prepare(state)
        audit.clear()
        expected = expectation(order, state, first, second)
        found = play(sessions, case, order, first, second)
        assert found == expected, f"{first}, {second}: {order}"
        audit.assert_lawful()


def expectation(order, state, first, second):
    """Say how many rows the two report (None: refused with 40001), and the state that they leave."""
    level, ending = order
    between = EXPECTED[state][first]
    undone = ending in ("rolls back", "dies")
    if not ending.endswith("begins"):
        return 1, 0, state if undone else between  # it skipped the locked row
    if level == REPEATABLE_READ:
        return 1, None if second in EXPECTED[state] else 0, between
    if second in EXPECTED[between]:
        return 1, 1, EXPECTED[between][second]
    return 1, 0, between


def play(sessions: tuple[HandSession, HandSession], case: Case, order, first, second):
    level, ending = order
    one, other = sessions
    one.begin(level)
    other.begin(level)
    by_first = one.run(lambda execute: ACTORS[first](case, execute))
    if ending.endswith("begins"):
        one.commit()
    step = other.start(lambda execute: ACTORS[second](case, execute))
    assert not other.waits_for(one, step), f"{second} must not wait for {first}"
    if ending == "commits last":
        other.commit()
    match ending:
        case "commits" | "commits last":
            one.commit()
        case "rolls back":
            one.rollback()
        case "dies":
            one.die()
    try:
        by_second = step.result(timeout=10)
    except DatabaseError as error:
        if not is_serialization_failure(error):
            raise
        by_second = None
        other.rollback()
    other.commit()
    return by_first, by_second, left_state(case)


def left_state(case: Case) -> str:
    """Name the state of the case's row in the words of EXPECTED."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select status, locked_by, cancel_requested_at is not null, attempts, max_attempts, "
            "run_at > now(), finished_at < now() - interval '7 days', "
            "exists (select from django_pgjobs_worker w where w.id = locked_by and died_at < now()) "
            "from django_pgjobs_job where id = %s",
            [case.job],
        )
        row = cursor.fetchone()
    if row is None:
        return "gone"
    status, holder, asked, attempts, most, delayed, old, lost = row
    if status == "running":
        if holder == case.other:
            return "taken"
        if lost and not asked and attempts == most:
            return "lost in the last attempt"
        name = "lost" if lost else "running"
        return {"lost": "lost asked", "running": "asked"}[name] if asked else name
    if status == "pending":
        return "delayed" if delayed else "pending"
    return f"old {status}" if old else status
