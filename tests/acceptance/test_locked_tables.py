"""A lock that somebody holds delays what needs it, and costs no living worker its lease."""

from __future__ import annotations

import psycopg
import pytest

from django_pgjobs.models import Job, Worker
from tests.app.jobs import noop
from tests.app.probes import hold
from tests.waiting import eventually

pytestmark = pytest.mark.newest

LEASE = {"LEASE": 4, "HEARTBEAT": 1, "POLL": 0.1}


def beat_since(moment):
    return (Worker.objects.get().heartbeat_at - moment).total_seconds()


@pytest.mark.parametrize("kind", ["worker", "supervisor"])
def test_heartbeats_go_on_while_the_table_of_jobs_is_locked(processes, database_url, kind):
    started = getattr(processes, kind)(pgjobs=LEASE)
    before = started.worker.heartbeat_at
    with psycopg.connect(database_url) as other:
        other.execute("lock table django_pgjobs_job in access exclusive mode")
        eventually(lambda: beat_since(before) > 2 * LEASE["LEASE"], within=30)

    assert Worker.objects.get().died_at is None
    job = noop.enqueue()
    eventually(lambda: Job.objects.done().filter(pk=job.pk).exists())
    assert started.stop() == 0


def test_a_locked_row_delays_its_own_job_and_no_other(processes, database_url):
    started = processes.worker("--threads", "1")
    held = hold.enqueue(key="one")
    eventually(lambda: Job.objects.running().count() == 1)
    with psycopg.connect(database_url) as other:
        other.execute("select from django_pgjobs_job where id = %s for update", [held.id])
        processes.open_gate("one")
        noop.enqueue_many({} for _ in range(20))
        eventually(lambda: Job.objects.done().count() == 20)
        assert Job.objects.get(pk=held.pk).status == "running"

    eventually(lambda: Job.objects.done().count() == 21)
    assert Job.objects.get(pk=held.pk).claims == 1
    assert started.stop() == 0
