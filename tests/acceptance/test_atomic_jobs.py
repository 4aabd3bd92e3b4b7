"""Atomic jobs: whatever happens at whatever step, the writes are there if and only if the job is done."""

from __future__ import annotations

import signal

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from django_pgjobs.models import Job, Worker
from tests.app.probes import write_atomically
from tests.hold_ups import held_up_at
from tests.processes import FAST, no_back_off
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("audited")
MODES = pytest.mark.parametrize("mode", ["lease", "transaction"])


def groups() -> int:
    return Group.objects.count()


def done() -> int:
    return Job.objects.done().count()


def nobody_works() -> bool:
    """Whether the server has ended every session of the processes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select from pg_stat_activity where datname = current_database() and application_name = 'pgjobs-test-process'"
        )
        return cursor.fetchone() is None


def assert_it_is_done_once_in_the_end(processes, mode):
    other = processes.worker("--claim", mode, pgjobs=FAST)
    assert other.worker
    eventually(lambda: no_back_off() or done() == 1, within=20)
    assert groups() == 1
    assert other.stop() == 0


@MODES
def test_a_kill_inside_the_handler_leaves_neither(processes, mode):
    worker = processes.worker("--claim", mode, pgjobs=FAST)
    write_atomically.enqueue(name="x", wait=True)
    eventually(lambda: processes.ledger.starts("x"))
    worker.kill()
    eventually(nobody_works)
    assert (groups(), done()) == (0, 0)
    processes.open_gate("x")
    assert_it_is_done_once_in_the_end(processes, mode)


@MODES
@pytest.mark.parametrize("step", ["settle", "commit"])
def test_a_kill_at_the_settle_or_the_commit_leaves_both_or_neither(processes, mode, step):
    worker = processes.worker("--claim", mode, pgjobs=FAST)
    with held_up_at(step) as wait:
        write_atomically.enqueue(name="x")
        wait()
        worker.kill()
        assert (groups(), done()) == (0, 0)
    eventually(nobody_works)
    # At the settle the COMMIT was not asked for yet; once it is, the server does it all the same.
    assert (groups(), done()) == ((1, 1) if step == "commit" else (0, 0))
    assert_it_is_done_once_in_the_end(processes, mode)


@MODES
@pytest.mark.parametrize("step", ["settle", "commit"])
def test_a_connection_lost_at_the_settle_or_the_commit_is_a_failed_attempt(processes, mode, step):
    worker = processes.worker("--claim", mode, "--threads", "1")  # another might take it at once
    with held_up_at(step) as wait, connection.cursor() as cursor:
        job = write_atomically.enqueue(name="x")
        cursor.execute("select pg_terminate_backend(%s)", [wait()])
        eventually(lambda: Job.objects.filter(attempts=1, status="pending").exists())
        assert (groups(), done()) == (0, 0)
    eventually(lambda: no_back_off() or done() == 1)
    job.refresh_from_db()
    assert groups() == 1
    assert (job.attempts, job.claims, len(job.errors)) == (2, 2, 1)
    assert "terminating connection" in job.last_error
    assert worker.stop() == 0


def test_a_lease_that_is_lost_meanwhile_takes_the_writes_back(processes):
    zombie = processes.worker("--threads", "2", pgjobs=FAST)
    job = write_atomically.enqueue(name="x", wait=True)
    eventually(lambda: processes.ledger.starts("x"))
    row_of_zombie = zombie.worker
    zombie.signal(signal.SIGSTOP)
    other = processes.worker(pgjobs=FAST)
    eventually(lambda: no_back_off() or len(processes.ledger.starts("x")) == 2, within=20)
    assert Worker.objects.get(pk=row_of_zombie.pk).died_at is not None
    processes.open_gate("x")
    eventually(lambda: done() == 1)
    zombie.signal(signal.SIGCONT)
    assert zombie.wait() == 1
    assert len(processes.ledger.ends("x")) == 2, "both bodies must have come to their end"
    assert [group.name for group in Group.objects.all()] == [f"x-{other.pid}"]
    job.refresh_from_db()
    assert (job.status, job.attempts, job.claims) == ("done", 2, 2)
    assert other.stop() == 0
