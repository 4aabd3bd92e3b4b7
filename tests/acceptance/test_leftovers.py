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
)
ROLLED_BACK = {"atomic", "autocommit", "failed query in atomic"}


def finished(job: Job) -> Job:
    eventually(lambda: Job.objects.filter(pk=job.pk, finished_at__isnull=False).exists())
    job.refresh_from_db()
    return job


@pytest.mark.parametrize("max_age", [0, None])
def test_each_job_finds_its_thread_as_the_first_one_did(processes, max_age):
    settings = json.dumps({"CONN_MAX_AGE": max_age})
    worker = processes.worker("--threads", "1", PGJOBS_TEST_CONNECTION=settings)
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
            "and application_name = 'pgjobs-test-process'"
        )
        assert cursor.fetchone() == (0,)
    assert worker.stop() == 0
