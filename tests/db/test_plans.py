"""Each index serves the statement that it exists for, whatever the statistics and the plan mode.

No test here touches the table as the tests of other files do: the rows are shared, and every
statement is rolled back.
"""

# ruff: noqa: S608 -- the SQL is put together from constants

from __future__ import annotations

import json
import os
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from django.db import connection as django_connection

from django_pgjobs import inserts, statements, upkeep
from django_pgjobs.claims import Claimer
from tests.db.plans import DUE, FORMERLY, JOB, WORKER, explain, refill

pytestmark = [pytest.mark.newest, pytest.mark.django_db]  # for the test database alone

BATCH = 100
ANY = ()  # settings of the planner: on a connection of the project
CLAIM_INDEX, RUNNING_INDEX = "pgjobs_job_claim", "pgjobs_job_running"
KEYED_INDEX, KEYED_DUE_INDEX = "pgjobs_job_keyed", "pgjobs_job_keyed_due"
FINISHED_INDEX, LIVING_INDEX = "pgjobs_job_finished", "pgjobs_worker_living"
JOB_KEY, WORKER_KEY = f"{JOB}_pkey", f"{WORKER}_pkey"
QUEUE = "django_pgjobs_queue"


@pytest.fixture(scope="module")
def session(django_db_setup, django_db_blocker):
    """A session of its own on the test database; its changes are undone by hand."""
    with django_db_blocker.unblock():
        name = quote(str(django_connection.settings_dict["NAME"]))
    url = urlsplit(os.environ["PGJOBS_TEST_URL"])._replace(path=f"/{name}").geturl()
    with psycopg.connect(url, autocommit=True) as session:
        try:
            session.execute(f"alter table {JOB} set (autovacuum_enabled = false)")
            session.execute(f"alter table {WORKER} set (autovacuum_enabled = false)")
            yield session
        finally:
            session.execute(f"truncate {JOB}, {WORKER} restart identity")
            session.execute(f"alter table {JOB} reset (autovacuum_enabled)")
            session.execute(f"alter table {WORKER} reset (autovacuum_enabled)")


@pytest.fixture(scope="module", params=["true", *FORMERLY], ids=lambda of: f"statistics of {of}")
def filled(request, session):
    refill(session, request.param)
    return session


@pytest.fixture(scope="module")
def claims(django_db_setup, django_db_blocker):
    """The claim statements, as a worker compiles them."""
    with django_db_blocker.unblock():
        named = Claimer("default", 1, ["default", "mail"])
        everything = Claimer("default", 1)
    params = {
        **named._params,
        "ids": list(range(BATCH)),
        "claims": 1,
    }  # it settles at the same time
    lanes = {
        "lane_queues": ["default", "mail"] * 2,
        "lane_priorities": [0, 0, 10, 10],
        "lane_times": ["2000-01-01 00:00:00+00"] * 4,
        "lane_ids": [0] * 4,
    }
    return {
        "named": (named._full, params),
        "all": (everything._full, params),
        "hot": (named._hot, {**params, **lanes}),
        "kinds": (everything._of_kinds, {**params, "among": True}),
    }


modes = pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan", "no prepare"])


@modes
@pytest.mark.parametrize("queues", ["named", "all", "hot"])
@pytest.mark.parametrize("limit", [1, BATCH])
def test_a_claim_reads_little_more_than_what_it_takes(filled, claims, queues, limit, mode):
    statement, params = claims[queues]

    plan = explain(filled, statement, {**params, "limit": limit}, mode)

    assert plan.written == limit
    assert abs(plan.locked - limit) <= plan.unsure
    probed = set() if queues == "hot" else {KEYED_DUE_INDEX}
    of_queues = {name for name in plan.indexes if name.startswith(QUEUE)}  # there are few
    assert plan.indexes - of_queues == {CLAIM_INDEX, JOB_KEY, WORKER_KEY} | probed
    assert JOB not in plan.seq_scans
    # Two or three for each row, and the dead entries of the past where there are some. Walking the
    # future jobs of a higher priority would be more than a thousand.
    assert plan.buffers_of("CTE due") < 200 + 3 * limit


@modes
@pytest.mark.parametrize("queues", ["named", "all", "hot"])
def test_a_claim_that_finds_nothing_reads_a_page_or_two_of_each_lane(filled, claims, queues, mode):
    statement, params = claims[queues]
    with filled.transaction(force_rollback=True):
        filled.execute(f"update {JOB} set run_at = run_at + interval '1 day' where unique_key > ''")

        plan = explain(filled, statement, {**params, "limit": BATCH}, mode)

    assert plan.written == plan.locked == 0
    assert JOB not in plan.seq_scans
    settled = plan.buffers_of("CTE settled")  # before 17 a server goes down the index for each id
    assert settled < 4 * BATCH
    assert plan.buffers - settled < 200


@modes
@pytest.mark.parametrize(("kinds", "taken"), [(["noop"], BATCH), (["other"], 0)])
def test_a_claim_of_some_kinds_looks_at_the_first_jobs_and_locks_what_it_takes(
    filled, claims, kinds, taken, mode
):
    statement, params = claims["kinds"]

    plan = explain(filled, statement, {**params, "kinds": kinds, "limit": BATCH}, mode)

    assert plan.written == plan.locked == taken
    assert plan.indexes >= {CLAIM_INDEX, KEYED_DUE_INDEX, JOB_KEY, WORKER_KEY}
    assert KEYED_INDEX not in plan.indexes
    assert JOB not in plan.seq_scans
    assert plan.buffers_of("CTE near") < 200 + 3 * statements.NEAR


ROWS = [{"id": n, "claims": 1, "delay": 1.0, "last_error": "", "error": {}} for n in range(BATCH)]
HELD = {"worker": 1, "claims": [1] * BATCH}


def running(session):
    return [
        job_id
        for (job_id,) in session.execute(
            f"select id from {JOB} where status = 'running' and locked_by = 1"
        )
    ]


@modes
@pytest.mark.parametrize(
    "statement",
    ["COMPLETE", "COMPLETE_WITH_RESULT", "RETRY", "FAIL", "CANCEL", "STOP", "SNOOZE", "RELEASE"],
)
def test_a_settle_finds_its_rows_by_the_primary_key(filled, statement, mode):
    ids = running(filled)
    rows = json.dumps([{**row, "id": n} for row, n in zip(ROWS, ids, strict=False)])
    claims = [1] * len(ids) if statement == "RELEASE" else 1
    params = {"worker": 1, "ids": ids, "claims": claims, "rows": rows}

    plan = explain(filled, getattr(statements, statement), params, mode)

    assert len(ids) == 50
    assert plan.written == (0 if statement == "CANCEL" else 50)  # nobody asked for a cancel
    assert plan.indexes == {JOB_KEY}
    assert JOB not in plan.seq_scans
    assert plan.buffers < 100 + 50 * len(ids)


@modes
def test_what_goes_between_handlers_and_rows_finds_these_by_the_primary_key(filled, mode):
    ids = running(filled)
    rows = [{"id": n, "claims": 1, "progress": {"fraction": 0.5}} for n in ids]
    params = {"worker": 1, "listening": ids, "rows": json.dumps(rows)}

    plan = explain(filled, statements.EXCHANGE, params, mode)

    assert plan.written == plan.locked == 50
    assert plan.indexes == {JOB_KEY}
    assert JOB not in plan.seq_scans
    assert plan.buffers < 100 + 50 * len(ids)


@modes
def test_orphans_are_found_among_the_running_jobs(filled, mode):
    params = {"worker": 1, "ids": running(filled)[:10], "claims": [1] * 10}

    plan = explain(filled, statements.RELEASE_ORPHANS, params, mode)

    assert plan.written == plan.locked == 40
    assert plan.indexes == {RUNNING_INDEX, JOB_KEY}
    assert JOB not in plan.seq_scans


@modes
def test_the_reaper_finds_lost_jobs_among_the_running_ones(filled, mode):
    plan = explain(filled, upkeep.REAP, {"lease": 60.0, "limit": 1000}, mode, planning=ANY)

    assert plan.locked == 50  # those of worker 2, which is dead
    assert RUNNING_INDEX in plan.indexes
    assert JOB not in plan.seq_scans


@modes
def test_the_preview_of_a_reap_reads_the_running_jobs_alone(filled, mode):
    plan = explain(filled, upkeep.COUNT_LOST, {"lease": 60.0}, mode, planning=ANY)

    assert RUNNING_INDEX in plan.indexes
    assert JOB not in plan.seq_scans


@modes
def test_the_dead_are_sought_among_the_workers_that_live(filled, mode):
    plan = explain(filled, upkeep.RECORD_DEATHS, {"lease": 60.0, "death": "x"}, mode, planning=ANY)

    assert plan.written == plan.locked == 6
    assert LIVING_INDEX in plan.indexes
    assert WORKER not in plan.seq_scans


@modes
@pytest.mark.parametrize("status", upkeep.PRUNE)
def test_pruning_takes_the_oldest_of_a_status_and_reads_no_more(filled, status, mode):
    plan = explain(
        filled, upkeep.PRUNE[status], {"keep": 86_400.0, "limit": BATCH}, mode, planning=ANY
    )

    assert plan.written == plan.locked == BATCH
    assert plan.indexes == {FINISHED_INDEX, JOB_KEY}
    assert JOB not in plan.seq_scans
    # Without any statistics the server takes all that are old for a few, and sorts them; once there are
    # more of them, it goes by the order of the index.
    assert plan.buffers < 100 + 30 * BATCH


@modes
@pytest.mark.parametrize("status", upkeep.PRUNE)
def test_pruning_where_nothing_is_old_enough_reads_a_page_or_two(filled, status, mode):
    plan = explain(filled, upkeep.PRUNE[status], {"keep": 1e9, "limit": BATCH}, mode, planning=ANY)

    assert plan.written == 0
    assert JOB not in plan.seq_scans
    assert plan.buffers < 20


@modes
def test_a_unique_key_is_found_by_its_index(filled, mode):
    statement = f"select id from {JOB} where unique_key = %(key)s"

    plan = explain(filled, statement, {"key": f"key {DUE}"}, mode, planning=ANY)

    assert plan.indexes == {"pgjobs_job_unique_key"}


KEYED = {"unique_keys": [f"key {DUE}", "another"], "kind": "noop", "delay": 0.0}
NEW_ROW = dict.fromkeys(("ids", "run_at", "subject_type", "subject_id", "meta")) | {
    "payloads": ["{}", "{}"],
    "concurrency_keys": [None, None],
    "queue": "default",
    "priority": 0,
    "max_attempts": 5,
}


@modes
@pytest.mark.parametrize("name", ["INSERT_OR_FIND", "INSERT_OR_HOLD", "INSERT_OR_REPLACE"])
def test_unique_jobs_are_enqueued_by_the_index_of_their_keys(filled, name, mode):
    plan = explain(filled, getattr(inserts, name), {**KEYED, **NEW_ROW}, mode, planning=ANY)

    assert plan.written >= 1
    assert plan.indexes == {"pgjobs_job_unique_key"}
    assert JOB not in plan.seq_scans
    assert plan.buffers < 200


@modes
@pytest.mark.parametrize("name", ["FREE_OR_FIND", "FREE_OR_REPLACE"])
def test_keys_whose_period_is_over_are_freed_by_their_index(filled, name, mode):
    given = {**KEYED, **NEW_ROW, "period": 60.0}

    plan = explain(filled, getattr(inserts, name), given, mode, planning=ANY)

    assert plan.written >= 1
    assert plan.indexes - {JOB_KEY} == {"pgjobs_job_unique_key"}
    assert JOB not in plan.seq_scans
    assert plan.buffers < 200


@modes
def test_the_newest_jobs_about_something_are_the_first_of_their_index(filled, mode):
    with filled.transaction(force_rollback=True):
        filled.execute(ABOUT)
        plan = explain(
            filled, NEWEST, {"type": "shop.order", "id": "7", "limit": 11}, mode, planning=ANY
        )

    assert plan.indexes == {"pgjobs_job_subject"}
    assert plan.buffers < 50


ABOUT = f"""
update {JOB} set subject_type = 'shop.order', subject_id = id % 10 where unique_key > ''
"""
NEWEST = f"""
select * from {JOB} where subject_type = %(type)s and subject_id = %(id)s
order by id desc limit %(limit)s
"""
