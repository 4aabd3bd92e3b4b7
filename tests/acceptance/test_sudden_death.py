"""Workers that die without a word: their jobs come back, are counted truly, and nobody else suffers."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter

import pytest
from django.db import connection

from django_pgjobs.models import Job, Worker
from tests import audit
from tests.app.probes import hold, leave, record
from tests.processes import FAST, no_back_off
from tests.waiting import eventually

pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("audited")]
TOLD = {**FAST, "MAX_ATTEMPTS": 50}


def settled() -> bool:
    no_back_off()
    return not Job.objects.filter(status__in=["pending", "running"]).exists()


def lost_attempts(job: Job) -> list[int]:
    return [entry["attempt"] for entry in job.errors if entry["error"] == "WorkerLost"]


def test_a_job_of_a_killed_worker_is_finished_by_another(processes):
    victim = processes.worker(pgjobs=FAST)
    job = hold.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    victim.kill()
    killed = time.time()
    processes.open_gate("x")
    processes.worker(pgjobs=FAST)
    processes.reaper("--interval", "0.2", pgjobs=FAST)
    eventually(lambda: Job.objects.done().exists(), within=20)
    job.refresh_from_db()
    assert (job.attempts, job.claims, lost_attempts(job)) == (2, 2, [1])
    assert "no heartbeat for more than 2 s" in job.last_error
    _, second = processes.ledger.starts("x")
    most = 2 + 0.5 + 0.2 + 2.2 + 0.1  # lease, a late heartbeat, the reaper, the back-off, a poll
    assert second.at - killed < most + 5, "5 s more are for a busy machine"


@pytest.mark.parametrize("row_is", ["there", "deleted"])
def test_a_restarted_worker_of_the_same_host_and_pid_hides_no_orphan(processes, row_is):
    victim = processes.worker(pgjobs=FAST)
    job = hold.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    dead = victim.worker
    victim.kill()
    successor = processes.worker(pgjobs=FAST)
    # What a container does that has a fixed host name and runs its worker as process 1.
    Worker.objects.filter(pk=successor.worker.pk).update(host=dead.host, pid=dead.pid)
    if row_is == "deleted":
        Worker.objects.filter(pk=dead.pk).delete()
    processes.open_gate("x")
    eventually(lambda: no_back_off() or Job.objects.done().exists(), within=20)
    job.refresh_from_db()
    assert (job.attempts, lost_attempts(job)) == (2, [1])
    assert [entry.pid for entry in processes.ledger.starts("x")] == [victim.pid, successor.pid]


def test_workers_killed_at_random_moments_lose_no_job_and_no_count(processes):
    seed = int(os.environ.get("PGJOBS_TEST_SEED") or random.SystemRandom().randrange(10**6))
    print(f"PGJOBS_TEST_SEED={seed}")  # noqa: T201 -- pytest shows it with a failure
    chance = random.Random(seed)  # noqa: S311 -- to be repeated, not to be secret
    workers = [processes.worker("--threads", "4", pgjobs=TOLD) for _ in range(3)]
    assert all(process.worker for process in workers)
    jobs = 0
    for _ in range(30):
        record.using(max_attempts=50).enqueue_many(
            {"key": str(n), "seconds": chance.choice([0, 0, 0.01, 0.1])}
            for n in range(jobs, jobs + 40)
        )
        jobs += 40
        victim = workers.pop(chance.randrange(3))
        if chance.random() < 0.7:
            assert victim.worker  # it works, and not only imports
        time.sleep(
            chance.uniform(0, 0.2)
        )  # not to wait for anything: the moment is the test's input
        victim.kill()
        workers.append(processes.worker("--threads", "4", pgjobs=TOLD))
        no_back_off()
    eventually(settled, within=40)
    assert all(process.worker for process in workers), "each is there to be stopped"
    assert [process.stop() for process in workers] == [0, 0, 0]
    assert_counts_are_true(processes, jobs)


def assert_counts_are_true(processes, jobs):
    assert Counter(Job.objects.values_list("status", flat=True)) == {"done": jobs}
    starts = Counter(entry.key for entry in processes.ledger.starts())
    history = Counter()
    for change in audit.changes():
        history[change.job, "claims"] += (change.old, change.new) == ("pending", "running")
        history[change.job, "releases"] += bool(change.given_back)
    interrupted = 0
    for job in Job.objects.all():
        claims, releases = history[job.id, "claims"], history[job.id, "releases"]
        assert (job.claims, job.attempts) == (claims, claims - releases)
        assert 1 <= starts[job.payload["key"]] <= job.attempts, job.errors
        assert lost_attempts(job) == list(range(1, job.attempts)), "each lost attempt is told"
        interrupted += job.attempts > 1
    assert interrupted, "no kill hit a job: this run has shown nothing"


@pytest.mark.parametrize("how", ["os._exit", "kill"])
def test_a_job_that_kills_its_worker_does_so_as_often_as_it_may_start(processes, how):
    poison = leave.using(max_attempts=3).enqueue(key="poison", how=how)
    record.using(max_attempts=4).enqueue_many({"key": f"good-{n}"} for n in range(100))
    reaper = processes.reaper("--interval", "0.2", pgjobs=FAST)
    deaths = 0
    while deaths < 4:
        no_back_off()
        worker = processes.worker("--threads", "2", pgjobs=FAST)
        eventually(lambda worker=worker: not worker.alive or settled(), within=30)
        if settled():
            break
        assert worker.wait() == (3 if how == "os._exit" else -signal.SIGKILL)
        deaths += 1
    poison.refresh_from_db()
    assert deaths == len(processes.ledger.starts("poison")) == 3
    assert (poison.status, poison.attempts, lost_attempts(poison)) == ("failed", 3, [1, 2, 3])
    assert poison.last_error.startswith("The worker was lost")
    assert Job.objects.done().count() == 100
    assert worker.worker, "it is there to be stopped"
    assert worker.stop() == reaper.stop() == 0


def test_a_job_that_was_claimed_without_the_worker_hearing_of_it_is_given_back(processes):
    worker = processes.worker("--threads", "2", "--queues", "served", pgjobs=FAST)
    holder = worker.worker
    job = record.using(queue="other").enqueue(key="x")
    with connection.cursor() as cursor:  # the claim whose answer was lost
        cursor.execute(
            "update django_pgjobs_job set status = 'running', attempts = 1, claims = 1, "
            "locked_at = now(), attempted_at = now(), locked_by = %s where id = %s",
            [holder.pk, job.pk],
        )
    eventually(lambda: Job.objects.pending().exists())
    job.refresh_from_db()
    assert (job.attempts, job.claims, job.attempted_at, job.errors) == (0, 1, None, [])
    assert worker.stop() == 0
    assert "claimed without an answer" in worker.output


def hold_at_most_three(key):
    kind = "hold_at_most_three"
    Job.objects.create(kind=kind, payload={"key": key}, concurrency_key=kind)


@pytest.mark.parametrize("supervised", [False, True], ids=["by its lease", "by its supervisor"])
def test_the_slots_of_a_killed_worker_are_used_again_and_no_more_than_these(processes, supervised):
    start = processes.supervisor if supervised else processes.worker
    victim = start("--threads", "3", pgjobs=FAST, PGJOBS_TEST_LIMITED="1")
    for n in range(3):
        hold_at_most_three(f"held-{n}")
    eventually(lambda: len(processes.ledger.starts()) == 3)
    for n in range(50):
        processes.open_gate(f"waiting-{n}")
    for n in range(50):
        hold_at_most_three(f"waiting-{n}")
    other = processes.worker("--threads", "8", pgjobs=FAST, PGJOBS_TEST_LIMITED="1")
    assert other.worker
    os.kill(processes.ledger.starts("held-0")[0].pid, signal.SIGKILL)
    killed = time.time()
    first, *_ = eventually(lambda: processes.ledger.starts("waiting-0"), within=20)
    most = 0 if supervised else 2.5  # a lease and a late heartbeat
    assert first.at - killed < most + 0.2 + 5, "5 s more are for a busy machine"
    for n in range(3):
        processes.open_gate(f"held-{n}")
    eventually(lambda: no_back_off() or Job.objects.done().count() == 53, within=30)
    assert audit.most_at_a_time() == {"hold_at_most_three": 3}
    held = Job.objects.filter(payload__key__startswith="held")
    assert [(job.attempts, lost_attempts(job)) for job in held] == [(2, [1])] * 3
    assert not Job.objects.exclude(pk__in=held).exclude(attempts=1).exists()
    assert other.stop() == 0
    assert not supervised or victim.stop() == 0
