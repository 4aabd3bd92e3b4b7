"""Children killed at random moments under load: their supervisors know exactly what had started.

`make chaos` does much worse, where the counts are right and doubts are charged.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress

import pytest

from django_pgjobs.models import Job, Worker
from tests.app.probes import record
from tests.processes import FAST, no_back_off
from tests.waiting import eventually

pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("audited")]
OPTIONS = ("--processes", "2", "--threads", "2")


def settled() -> bool:
    no_back_off()
    return not Job.objects.filter(status__in=["pending", "running"]).exists()


def enqueue(chance: random.Random, first: int) -> int:
    """Enqueue a handful, and return the number of the next job."""
    last = first + 80
    record.using(max_attempts=60).enqueue_many(
        {"key": str(n), "seconds": chance.choice([0, 0.01, 0.1, 0.2])} for n in range(first, last)
    )
    return last


def test_kills_at_random_moments_lose_no_job_and_no_count(processes):
    seed = int(os.environ.get("PGJOBS_TEST_SEED") or random.SystemRandom().randrange(10**6))
    print(f"PGJOBS_TEST_SEED={seed}")  # noqa: T201 -- pytest shows it with a failure
    chance = random.Random(seed)  # noqa: S311 -- to be repeated, not to be secret
    supervisors = [processes.supervisor(*OPTIONS, pgjobs=FAST) for _ in range(2)]
    for supervisor in supervisors:
        assert supervisor.worker
    jobs = 0
    for _ in range(20):
        jobs = enqueue(chance, jobs)
        victim = chance.randrange(2)
        children = eventually(lambda victim=victim: supervisors[victim].children, within=30)
        if chance.random() < 0.7:  # it works, and not only imports
            jobs = enqueue_until_at_work(processes, supervisors[victim], chance, jobs)
            children = supervisors[victim].children
        time.sleep(chance.uniform(0, 0.3))  # not to wait: the moment is the test's input
        with suppress(ProcessLookupError):
            os.kill(chance.choice(children), signal.SIGKILL)
        no_back_off()
    eventually(settled, within=40)
    assert [supervisor.stop() for supervisor in supervisors] == [0, 0]
    assert_counts_are_true(processes, jobs)


def enqueue_until_at_work(processes, supervisor, chance: random.Random, jobs: int) -> int:
    def at_work() -> bool:
        nonlocal jobs
        if not Job.objects.pending().exists():
            jobs = enqueue(chance, jobs)
        return bool({e.pid for e in processes.ledger.starts()} & set(supervisor.children))

    eventually(at_work, within=20)
    return jobs


def assert_counts_are_true(processes, jobs: int) -> None:
    assert Counter(Job.objects.values_list("status", flat=True)) == {"done": jobs}
    starts = Counter(entry.key for entry in processes.ledger.starts())
    assert sum(starts.values()) > jobs, "no kill hit a job: this run has shown nothing"
    unseen = 0  # starts that were counted, of handlers that did not come to their first line
    for job in Job.objects.all():
        assert 1 <= starts[job.payload["key"]] <= job.attempts, job.errors
        lost = [entry["attempt"] for entry in job.errors if entry["error"] == "WorkerLost"]
        assert lost == list(range(1, job.attempts)), "each lost attempt is told"
        unseen += job.attempts - starts[job.payload["key"]]
    killed = Worker.objects.exclude(death="stopped").count()
    assert set(Worker.objects.values_list("death", flat=True)) <= {"stopped", "signal 9"}
    assert unseen <= max(1, killed // 10), (unseen, killed)
