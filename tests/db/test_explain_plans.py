"""An answer takes some pages of an index, whatever the statistics: a page of the admin asks for it."""

# ruff: noqa: S608 -- the SQL is put together from constants

from __future__ import annotations

import re

import pytest

from django_pgjobs import obstacles
from tests.db.plans import DUE, JOB, WORKER, explain
from tests.db.test_plans import filled, modes, session  # noqa: F401 -- fixtures

pytestmark = pytest.mark.django_db  # for the test database alone

MANY = 20_000
MOST = 1_000
SETTINGS = [
    f"{name} = off" for name in re.findall(r"set_config\('(\w+)', 'off'", obstacles.SETTINGS)
]
KEYED = f"""
insert into {JOB} (kind, concurrency_key, priority, run_at)
select 'call', 'k', n % 3, statement_timestamp() + n % 2 * interval '1 day' from generate_series(1, {MANY}) n;
insert into {JOB} (kind, concurrency_key, status, attempts, claims, locked_at, locked_by)
select 'call', 'k', 'running', 1, 1, statement_timestamp(), 1 from generate_series(1, 3) n;
update {WORKER} set heartbeat_at = statement_timestamp() where died_at is null;
"""


@pytest.fixture(scope="module")
def waiting(filled):  # noqa: F811
    """The ids of the last due jobs, one without a key and one with."""
    filled.execute(KEYED)
    [(free, keyed)] = filled.execute(
        f"""select max(id) filter (where concurrency_key is null),
            max(id) filter (where concurrency_key is not null)
        from {JOB} where status = 'pending' and run_at <= statement_timestamp()"""
    ).fetchall()
    return filled, free, keyed


PARAMS = {"lease": 60.0, "most": MOST, "key": "k", "queue": "default"}


def plan_of(waiting, statement, mode, *, keyed):
    connection, free_id, keyed_id = waiting
    given = {**PARAMS, "id": keyed_id if keyed else free_id}
    return explain(connection, statement, given, mode, planning=SETTINGS)


@modes
@pytest.mark.parametrize("keyed", [False, True], ids=["free", "keyed"])
def test_where_a_job_stands_is_read_by_keys(waiting, mode, keyed):
    plan = plan_of(waiting, obstacles.STANDING, mode, keyed=keyed)
    assert plan.nodes[0]["Actual Rows"] == 1
    assert JOB not in plan.seq_scans
    assert plan.read(JOB) == 1


@modes
def test_who_holds_a_key_is_read_among_the_running_jobs(waiting, mode):
    plan = plan_of(waiting, obstacles.HOLDS, mode, keyed=True)
    assert JOB not in plan.seq_scans
    assert plan.read(JOB) < 300


@modes
@pytest.mark.parametrize("most", [MOST, 10 * DUE])
def test_a_line_is_read_as_far_as_it_is_counted(waiting, mode, most):
    connection, free, _ = waiting
    given = {**PARAMS, "id": free, "most": most}
    plan = explain(connection, obstacles.AHEAD, given, mode, planning=SETTINGS)
    assert JOB not in plan.seq_scans
    assert plan.read(JOB) < 1.1 * DUE + 100


@modes
@pytest.mark.parametrize("statement", ["AHEAD_IN_KEY", "AHEAD_IN_ORDER"])
def test_the_line_of_a_key_is_read_as_far_as_it_is_counted(waiting, mode, statement):
    plan = plan_of(waiting, getattr(obstacles, statement), mode, keyed=True)
    assert JOB not in plan.seq_scans
    assert plan.read(JOB) < 1.1 * MOST + 100
