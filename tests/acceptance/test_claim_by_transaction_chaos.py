"""Children killed at random moments while they claim by transaction: no effect twice, no job lost."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress

import pytest
from django.contrib.auth.models import Group

from django_pgjobs.models import Job
from tests.app.probes import write_row
from tests.processes import no_back_off

pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("audited")]
JOBS = 2_000
NO_REAPER = {"LEASE": 1_000, "HEARTBEAT": 400, "POLL": 0.1}


def finished() -> bool:
    no_back_off()
    return Job.objects.done().count() == JOBS


@pytest.mark.timeout(300)
def test_kills_at_random_moments_do_nothing_twice_and_lose_no_count(processes):
    seed = int(os.environ.get("PGJOBS_TEST_SEED") or random.SystemRandom().randrange(10**6))
    print(f"PGJOBS_TEST_SEED={seed}")  # noqa: T201 -- pytest shows it with a failure
    chance = random.Random(seed)  # noqa: S311 -- to be repeated, not to be secret
    arguments = ("--claim", "transaction", "--processes", "2", "--threads", "4")
    supervisors = [
        processes.supervisor(*arguments, pgjobs=NO_REAPER, PGJOBS_TEST_LOG_LEVEL="WARNING")
        for _ in range(2)
    ]
    assert all(supervisor.worker for supervisor in supervisors)
    write_row.using(max_attempts=60).enqueue_many(
        {"name": str(n), "seconds": chance.choice([0, 0, 0.02, 0.1])} for n in range(JOBS)
    )
    kills, until = 0, time.monotonic() + 120
    while not finished():
        assert time.monotonic() < until, "".join(supervisor.output for supervisor in supervisors)
        time.sleep(chance.uniform(0, 0.5))  # not to wait: the moment is the test's input
        children = [pid for supervisor in supervisors for pid in supervisor.children]
        at_work = {entry.pid for entry in processes.ledger.starts()}
        if kills < 20 and (victims := [pid for pid in children if pid in at_work]):
            kills += 1
            with suppress(ProcessLookupError):
                os.kill(chance.choice(victims), signal.SIGKILL)
    assert [supervisor.stop() for supervisor in supervisors] == [0, 0]
    assert Group.objects.count() == JOBS
    starts = Counter(entry.key for entry in processes.ledger.starts())
    said = "".join(supervisor.output for supervisor in supervisors)
    uncounted = said.count("an attempt was not counted") + said.count("cannot be counted")
    missing = unseen = 0
    for job in Job.objects.all():
        lost = [entry["attempt"] for entry in job.errors if entry["error"] == "WorkerLost"]
        assert lost == list(range(1, job.attempts)), "each lost attempt is told"
        assert job.claims == job.attempts
        missing += max(0, starts[job.payload["name"]] - job.attempts)
        unseen += max(0, job.attempts - starts[job.payload["name"]])
    lost = sum(starts.values()) - JOBS
    print(f"{kills} kills, {lost} lost, {missing} uncounted, {unseen} unseen")  # noqa: T201
    assert lost >= 10, "too few kills hit a job: this run has shown nothing"
    assert missing <= uncounted, "an attempt that is not counted is told"
    assert uncounted <= lost // 2, "most are counted"
    assert unseen <= kills // 5
