"""Who keeps the leases, and what follows when nobody does: the GIL held, processes killed or stopped."""

from __future__ import annotations

import os
import signal

import pytest
from django.db import connection

from django_pgjobs.models import Job, Worker
from tests.app.probes import hold, hold_gil, record
from tests.processes import FAST, lives, no_back_off
from tests.waiting import eventually

pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("audited")]


def done(key: str) -> bool:
    no_back_off()
    return Job.objects.done().filter(payload__key=key).exists()


def is_dead(worker: Worker) -> bool:
    worker.refresh_from_db()
    return worker.died_at is not None


def age_of_heartbeat(worker: Worker) -> float:
    with connection.cursor() as cursor:
        cursor.execute(
            "select extract(epoch from clock_timestamp() - heartbeat_at)::float "
            "from django_pgjobs_worker where id = %s",
            [worker.pk],
        )
        return cursor.fetchone()[0]


def test_a_handler_that_holds_the_gil_beyond_the_lease_keeps_its_job(processes):
    reaper = processes.reaper("--interval", "0.2", pgjobs=FAST)
    supervisor = processes.supervisor("--threads", "2", pgjobs=FAST)
    job = hold_gil.enqueue(key="x", seconds=5)  # a lease lasts for 2
    eventually(lambda: done("x"), within=15)
    job.refresh_from_db()
    assert (job.attempts, job.claims, len(processes.ledger.starts("x"))) == (1, 1, 1)
    assert supervisor.stop() == reaper.stop() == 0


def test_a_child_that_says_nothing_for_ten_leases_is_killed(processes):
    hasty = {"LEASE": 0.5, "HEARTBEAT": 0.1, "POLL": 0.1}
    supervisor = processes.supervisor(pgjobs=hasty)
    job = hold.enqueue(key="x")
    [start] = eventually(lambda: processes.ledger.starts("x"))
    os.kill(start.pid, signal.SIGSTOP)
    processes.open_gate("x")
    eventually(lambda: done("x"), within=15)
    job.refresh_from_db()
    assert "The worker was lost: no sign of life." in [e["message"] for e in job.errors]
    assert job.attempts == 2
    assert supervisor.stop() == 0


def test_children_die_with_their_supervisor_and_their_jobs_go_on_elsewhere(processes):
    supervisor = processes.supervisor("--processes", "2", "--threads", "1", pgjobs=FAST)
    hold.enqueue(key="waits")
    hold_gil.enqueue(key="blocks", seconds=60)
    starts = eventually(lambda: (s := processes.ledger.starts()) and len(s) == 2 and s)
    supervisor.signal(signal.SIGKILL)
    eventually(lambda: not any(lives(entry.pid) for entry in starts), within=1)
    with connection.cursor() as cursor:  # what no product does, and the audit need not see
        cursor.execute("alter table django_pgjobs_job disable trigger audit")
        Job.objects.filter(kind="hold_gil").update(kind="record", payload={"key": "blocks"})
        cursor.execute("alter table django_pgjobs_job enable trigger audit")
    processes.open_gate("waits")
    other = processes.supervisor(pgjobs=FAST)
    eventually(lambda: done("waits") and done("blocks"))
    assert set(Job.objects.values_list("attempts", flat=True)) == {2}
    assert other.stop() == 0


def test_without_a_death_signal_the_pipe_ends_the_children(processes):
    supervisor = processes.supervisor(pgjobs=FAST, PGJOBS_TEST_FAULT="no-death-signal")
    hold.enqueue(key="x")
    [start] = eventually(lambda: processes.ledger.starts("x"))
    supervisor.signal(signal.SIGKILL)
    eventually(lambda: not lives(start.pid), within=1)


def test_children_of_a_stopped_supervisor_start_nothing_once_their_lease_is_unsafe(processes):
    asleep = processes.supervisor("--threads", "2", pgjobs=FAST)
    job = hold.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    child = asleep.worker
    asleep.signal(signal.SIGSTOP)
    eventually(lambda: age_of_heartbeat(child) > 2)
    record.enqueue_many({"key": f"later-{n}"} for n in range(20))
    other = processes.supervisor(pgjobs=FAST)
    eventually(lambda: is_dead(child))
    processes.open_gate("x")
    eventually(lambda: done("x") and Job.objects.done().count() == 21)
    job.refresh_from_db()
    assert job.claims == 2
    asleep.signal(signal.SIGCONT)
    eventually(lambda: asleep.worker.pk != child.pk)
    assert "was taken for dead and is killed" in asleep.output
    assert child.death == "no heartbeat for more than 2 s"
    started_by = {e.pid for e in processes.ledger.starts() if e.key.startswith("later")}
    assert child.pid not in started_by
    assert other.stop() == 0
    record.enqueue(key="again")
    eventually(lambda: done("again"))
    assert asleep.stop() == 0


@pytest.mark.parametrize("whole_group", [False, True])
def test_a_supervisor_that_slept_alone_goes_on_with_its_children(processes, whole_group):
    hasty = {"LEASE": 0.5, "HEARTBEAT": 0.1, "POLL": 0.1}  # ten leases pass too
    supervisor = processes.supervisor("--threads", "2", pgjobs=hasty)
    hold.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    child = supervisor.worker
    send = supervisor.signal_group if whole_group else supervisor.signal
    send(signal.SIGSTOP)
    eventually(lambda: age_of_heartbeat(child) > 6, within=15)
    send(signal.SIGCONT)
    record.enqueue(key="next")
    eventually(lambda: done("next"))
    processes.open_gate("x")
    eventually(lambda: done("x"))
    assert supervisor.children == [child.pid]
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}
    assert supervisor.stop() == 0


def test_a_group_that_slept_beyond_its_lease_finds_its_death_and_goes_on(processes):
    asleep = processes.supervisor("--threads", "2", pgjobs=FAST)
    hold.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    child = asleep.worker
    asleep.signal_group(signal.SIGSTOP)
    other = processes.supervisor(pgjobs=FAST)
    processes.open_gate("x")
    eventually(lambda: done("x"), within=15)
    before = Job.objects.values().get()
    asleep.signal_group(signal.SIGCONT)
    eventually(lambda: asleep.worker.pk != child.pk)
    assert Job.objects.values().get() == before
    assert other.stop() == 0
    record.enqueue(key="again")
    eventually(lambda: done("again"))
    assert asleep.stop() == 0
