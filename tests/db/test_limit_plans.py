"""Keys with 100,000 jobs and 100,000 keys cost a look the same as a few, and other claims nothing.

As in test_plans, the rows are shared and every statement is rolled back.
"""

# ruff: noqa: S608 -- the SQL is put together from constants

from __future__ import annotations

import json

import pytest

from django_pgjobs import Limit, Rate, gates, limited_lanes
from django_pgjobs.claims import Claimer
from tests.db.limited import claimer, declare
from tests.db.plans import JOB, WORKER, explain
from tests.db.test_plans import KEYED_INDEX, QUEUE, RUNNING_INDEX, modes, session  # noqa: F401 -- a fixture

pytestmark = [pytest.mark.newest, pytest.mark.django_db]  # for the test database alone

MANY = 100_000
DUE_INDEX = "pgjobs_job_keyed_due"
RUNNING_KEYED, ORDER = "pgjobs_job_running_keyed", "pgjobs_job_order"

# A key that is full, one that waits for its rate, one whose first job in order waits for a further attempt,
# one whose jobs are all of the future, one held up by a stricter job that stands in another queue behind
# many of the future, each with many jobs waiting; then many keys with one job each.
FILL = f"""
insert into {JOB} (kind, concurrency_key, status, attempts, claims, locked_at, locked_by)
select 'call', 'a:full', 'running', 1, 1, statement_timestamp(), 1 from generate_series(1, 3) n;
insert into {gates.GATE} (name, next_at) values ('key:a:rated', statement_timestamp() + interval '1 hour');
insert into {gates.GATE} (name) select 'key:b:' || n from generate_series(1, 5000) n;
insert into {JOB} (kind, concurrency_key, run_at, attempts)
values ('ordered', 'a:ordered', statement_timestamp() + interval '1 hour', 1);
insert into {JOB} (kind, concurrency_key, run_at)
select kind, 'a:' || key, case when key = 'future' then statement_timestamp() + interval '1 day'
    else statement_timestamp() end
from (values ('call', 'full'), ('rated', 'rated'), ('ordered', 'ordered'), ('call', 'future'), ('call', 'shared'))
    k(kind, key), generate_series(1, {MANY} / 4);
insert into {JOB} (kind, concurrency_key, queue, priority, run_at)
select 'call', 'a:shared', 'other', n % 3 + 1, statement_timestamp() + interval '1 day'
from generate_series(1, {MANY} / 4) n
union all select 'noop', 'a:shared', 'other', 0, statement_timestamp() - interval '1 hour';
insert into {WORKER} (host, pid, threads, queues, heartbeat_at)
values ('h', 1, 1, '["other"]', statement_timestamp() + interval '1 hour');
insert into {JOB} (kind, concurrency_key)
select 'call', 'b:' || n from generate_series(1, {MANY}) n;
insert into {JOB} (kind) select 'noop' from generate_series(1, 1000);
"""


@pytest.fixture(
    scope="module", params=["nothing", "no keys", "all of it"], ids=lambda of: f"statistics of {of}"
)
def filled(request, session):  # noqa: F811
    if request.param == "no keys":  # the first with keys come by the thousand
        noops = f"insert into {JOB} (kind) select 'noop' from generate_series(1, 5000)"
        session.execute(f"truncate {JOB}; {noops}; analyze {JOB}")
    session.execute(f"truncate {JOB}, {gates.GATE}; analyze {JOB}, {gates.GATE}; {FILL}")
    if request.param == "all of it":
        session.execute(f"analyze {JOB}, {gates.GATE}, {WORKER}, {QUEUE}")
    yield session
    session.execute(f"truncate {gates.GATE}")


@pytest.fixture(params=[None, ["call", "rated"]], ids=["any kind", "some kinds"])
def params(request, kinds):
    declare(concurrency=Limit(3, key="customer"))
    declare("rated", rate=Rate(1, per=60, key="customer"))
    declare("ordered", concurrency=Limit(1, key="customer"), ordered=True)
    return claimer(queues=["default"], kinds=request.param)._params | {
        "limit": 8,
        "from_queue": "",
        "from_key": "",
    }


@modes
@pytest.mark.parametrize("all_queues", [True, False], ids=["all queues", "named queues"])
def test_a_look_reads_some_pages_of_each_lane_that_it_passes(filled, params, all_queues, mode):
    statement = gates.of_sort(limited_lanes.find(all_queues=all_queues), params["kinds"])

    plan = explain(filled, statement, params, mode)

    assert KEYED_INDEX in plan.indexes
    assert ORDER in plan.indexes
    assert {RUNNING_KEYED, RUNNING_INDEX} & plan.indexes  # without statistics either is as good
    assert {JOB, gates.GATE}.isdisjoint(plan.seq_scans)
    assert plan.nodes[0]["Actual Rows"] == 8  # the free ones, and no lane more was passed
    assert plan.buffers < 300


@modes
@pytest.mark.parametrize("all_queues", [True, False], ids=["all queues", "named queues"])
def test_a_look_among_what_is_due_reads_the_first_of_it(filled, params, all_queues, mode):
    statement = limited_lanes.find(all_queues=all_queues, among_due=True)
    statement = gates.of_sort(statement, params["kinds"])

    plan = explain(filled, statement, params, mode)

    assert DUE_INDEX in plan.indexes
    assert {JOB, gates.GATE}.isdisjoint(plan.seq_scans)
    assert plan.buffers < 800


@modes
@pytest.mark.parametrize("all_queues", [True, False], ids=["all queues", "named queues"])
def test_a_look_at_a_key_that_is_held_up_reads_some_pages_of_each_queue(
    filled, params, all_queues, mode
):
    statement = gates.of_sort(limited_lanes.find(all_queues=all_queues), params["kinds"])
    given = {**params, "from_queue": "default", "from_key": "a:rated", "limit": 2}

    plan = explain(filled, statement, given, mode)

    found = [key for _n, _queue, key, *_ in filled.execute(statement, given)]
    assert found == ["b:1", "b:10"]
    assert JOB not in plan.seq_scans
    assert plan.buffers < 150


@modes
def test_a_claim_reads_what_it_takes(filled, params, mode):
    lanes = [
        {
            "position": n,
            "queue": "default",
            "key": key,
            "kind": {"a:rated": "rated", "a:ordered": "ordered"}.get(key, "call"),
            "priority": 0,
            "ordered": key == "a:ordered",
        }
        for n, key in enumerate(["a:full", "a:rated", "a:ordered", "b:1", "b:2", "b:3"])
    ]
    names = [f"key:{lane['key']}" for lane in lanes]
    given = {**params, "lanes": json.dumps(lanes), "visit": 5}
    with filled.transaction(force_rollback=True):
        filled.execute(f"insert into {gates.GATE} (name) values ('key:a:full'), ('key:a:ordered')")
        filled.execute(f"update {gates.GATE} set visit = 5 where name = any(%s)", [names])

        plan = explain(filled, gates.of_sort(gates.CLAIM, params["kinds"]), given, mode)

    assert plan.locked == 3
    assert KEYED_INDEX in plan.indexes
    assert JOB not in plan.seq_scans
    assert plan.buffers < 400


@modes
@pytest.mark.parametrize("queues", [None, ["default"]], ids=["all queues", "named queues"])
def test_the_claim_of_other_jobs_reads_one_page_more(filled, queues, mode):
    claims = Claimer("default", 1, queues)
    given = {**claims._params, "ids": [], "claims": 0, "limit": 100}

    plan = explain(filled, claims._full, given, mode)

    assert plan.written == plan.locked == 100
    assert JOB not in plan.seq_scans
    assert plan.buffers_of("CTE due") < 500
    assert KEYED_INDEX not in plan.indexes
    probes = [node for node in plan.nodes if node.get("Index Name") == DUE_INDEX]
    assert sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in probes) <= 10
