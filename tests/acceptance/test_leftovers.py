"""What a job leaves behind in its thread or on its connection does not reach the next job."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from django_pgjobs.models import Job
from tests.app.probes import litter, look
from tests.waiting import eventually

LEFTOVERS = (
    "language",
    "timezone",
    "context variable",
    "atomic",
    "autocommit",
    "failed query",
    "failed query in atomic",
    "begin by hand",
    "set statement_timeout = 12345",
    "/* a comment */ set search_path = pg_catalog",
    "select 1; set work_mem = '5MB'",
    "select set_config('lock_timeout', '777', false)",
    "set role pg_monitor",
    "create temp table left_behind (id int)",
    "select 1 as id into temp left_behind",
    "create or replace temp view left_behind as select 1",
    "select pg_advisory_lock(1)",
    "select pg_try_advisory_lock_shared(1)",
    "prepare left_behind as select 1",
)
ROLLED_BACK = {"atomic", "autocommit", "failed query in atomic", "begin by hand"}


def finished(job: Job) -> Job:
    eventually(lambda: Job.objects.filter(pk=job.pk, finished_at__isnull=False).exists())
    job.refresh_from_db()
    return job


POOL = {"OPTIONS": {"pool": {"min_size": 1, "max_size": 1}}}


@pytest.mark.parametrize("settings", [{}, {"CONN_MAX_AGE": None}, POOL], ids=["0", "kept", "pool"])
def test_each_job_finds_its_thread_as_the_first_one_did(processes, settings):
    worker = processes.worker("--threads", "1", PGJOBS_TEST_CONNECTION=json.dumps(settings))
    clean = finished(look.enqueue()).result
    assert clean["atomic"] is False
    assert clean["autocommit"] is True
    for what in LEFTOVERS:
        job = finished(litter.using(max_attempts=1).enqueue(what=what))
        assert job.status == ("failed" if what in ROLLED_BACK else "done"), (what, job.last_error)
        if what in ROLLED_BACK:
            assert "transaction open" in job.last_error, what
        found = finished(look.enqueue()).result
        assert {**found, "backend": 0} == {**clean, "backend": 0}, what
    assert not Group.objects.exists(), "an open transaction must be rolled back"
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from pg_stat_activity where state like 'idle in transaction%%' "
            "and datname = current_database() and application_name = 'pgjobs-test-process'"
        )
        assert cursor.fetchone() == (0,)
    assert worker.stop() == 0
