"""A worker that was taken for dead and wakes up again: nothing that it does counts any more."""

from __future__ import annotations

import signal

import pytest
from django.utils import timezone

from django_pgjobs.models import Job, Worker
from tests import audit
from tests.app.probes import hold, record
from tests.processes import FAST, no_back_off
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("audited")


def is_dead(worker: Worker) -> bool:
    worker.refresh_from_db()
    return worker.died_at is not None


def test_a_worker_that_slept_beyond_its_lease_changes_nothing_and_says_so(processes):
    zombie = processes.worker("--threads", "2", pgjobs=FAST)
    job = hold.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    record_of_zombie = zombie.worker
    zombie.signal(signal.SIGSTOP)
    other = processes.worker("--threads", "2", pgjobs=FAST)
    eventually(lambda: no_back_off() or len(processes.ledger.starts("x")) == 2, within=20)
    assert is_dead(record_of_zombie)
    processes.open_gate("x")
    eventually(lambda: Job.objects.done().exists())
    job.refresh_from_db()
    before = Job.objects.values().get(pk=job.pk)
    record.enqueue_many({"key": f"later-{n}"} for n in range(20))
    zombie.signal(signal.SIGCONT)
    assert zombie.wait() == 1
    assert f"The lease of job {job.pk} (hold) was lost: its outcome is dropped." in zombie.output
    assert "was taken for dead and must stop" in zombie.output
    assert Job.objects.values().get(pk=job.pk) == before
    assert (job.attempts, job.claims) == (2, 2)
    assert [entry.pid for entry in processes.ledger.starts("x")] == [zombie.pid, other.pid]
    eventually(lambda: Job.objects.done().count() == 21)
    started_by = {e.pid for e in processes.ledger.starts() if e.key.startswith("later")}
    assert started_by == {other.pid}, "the zombie must start nothing any more"


def test_a_zombie_does_not_disturb_the_attempt_that_runs_now(processes):
    zombie = processes.worker(pgjobs=FAST)
    hold.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    zombie.signal(signal.SIGSTOP)
    other = processes.worker(pgjobs=FAST)
    eventually(lambda: no_back_off() or len(processes.ledger.starts("x")) == 2, within=20)
    holder = other.worker.pk
    zombie.signal(signal.SIGCONT)  # both run the handler now
    eventually(lambda: "was taken for dead" in zombie.output)
    job = Job.objects.get()
    assert (job.status, job.locked_by, job.claims) == ("running", holder, 2)
    processes.open_gate("x")
    assert zombie.wait() == 1
    eventually(lambda: Job.objects.done().exists())
    assert other.stop() == 0


def test_a_worker_whose_death_is_recorded_starts_nothing_more_and_exits(processes):
    pgjobs = {"LEASE": 6, "HEARTBEAT": 2, "POLL": 0.05}
    worker = processes.worker("--shutdown-timeout", "0", pgjobs=pgjobs)
    # Just after a heartbeat: it learns of its death some polls later only.
    eventually(lambda: worker.worker.heartbeat_at > worker.worker.started_at)
    assert Worker.objects.filter(pk=worker.worker.pk).update(died_at=timezone.now()) == 1
    record.enqueue(key="x")
    assert worker.wait() == 1
    assert "was taken for dead and must stop" in worker.output
    assert processes.ledger.starts() == []
    assert Job.objects.pending().filter(claims=0).count() == 1


def test_a_zombie_gives_away_no_slot_but_the_one_that_it_had(processes):
    limited = hold.using(concurrency_key="one at a time")
    zombie = processes.worker("--threads", "1", pgjobs=FAST)
    job = limited.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    limited.enqueue(key="y")
    zombie.signal(signal.SIGSTOP)
    other = processes.worker("--threads", "4", pgjobs=FAST)
    eventually(lambda: processes.ledger.starts("y"), within=20)
    zombie.signal(signal.SIGCONT)
    processes.open_gate("x")
    assert zombie.wait() == 1
    assert f"The lease of job {job.pk} (hold) was lost" in zombie.output
    eventually(lambda: no_back_off() or Job.objects.due().filter(pk=job.pk).exists())
    processes.open_gate("y")
    eventually(lambda: Job.objects.done().count() == 2)
    assert audit.most_at_a_time() == {"one at a time": 1}
    job.refresh_from_db()
    assert (job.attempts, job.claims) == (2, 2)
    assert [entry.pid for entry in processes.ledger.starts("x")] == [zombie.pid, other.pid]
    assert other.stop() == 0
