"""Real workers do what handlers ask for and kinds declare, however a job is claimed and run."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.db.models import Sum

from django_pgjobs.models import Figure, Job
from tests.app.asking_probes import aask, ask, ask_atomically
from tests.hold_ups import held_up_at
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("audited")

# what is asked for: status, attempts, entries of `errors`, seconds until the next attempt
EXPECTED = {
    "nothing": ("done", 1, 0, None),
    "retry": ("pending", 1, 1, (2_990, 3_010)),
    "retry by the policy": ("pending", 1, 1, (1_790, 2_210)),
    "snooze": ("pending", 0, 0, (2_990, 3_010)),
    "bad snooze": ("pending", 1, 1, (1_790, 2_210)),
    "discard": ("failed", 1, 1, None),
    "discard by its type": ("failed", 1, 1, None),
    "not to be retried": ("failed", 1, 1, None),
}


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [("lease", [ask, aask, ask_atomically]), ("transaction", [ask, ask_atomically])],
    ids=["lease", "transaction"],
)
def test_each_job_becomes_what_its_handler_asked_for(processes, mode, kinds):
    jobs = {
        (kind.kind, what): kind.enqueue(what=what, name=f"{kind.kind}-{what}")
        for kind in kinds
        for what in EXPECTED
    }
    worker = processes.worker("--claim", mode)
    eventually(lambda: not Job.objects.filter(claims=0).exists())
    eventually(lambda: not Job.objects.running().exists())
    assert worker.stop() == 0

    for (kind, what), job in jobs.items():
        job.refresh_from_db()
        status, attempts, errors, waits = EXPECTED[what]
        found = (job.status, job.attempts, len(job.errors), job.claims)
        assert found == (status, attempts, errors, 1), (kind, what)
        if waits:
            assert waits[0] < (job.run_at - job.attempted_at).total_seconds() < waits[1]
        kept = what == "nothing" or (kind != "ask_atomically" and mode == "lease")
        assert Group.objects.filter(name=f"{kind}-{what}").exists() == kept, (kind, what)
    sums = Figure.objects.aggregate(done=Sum("done"), failed=Sum("failed"))
    assert sums == {"done": len(kinds), "failed": 6 * len(kinds)}, "a snooze is neither"


@pytest.mark.parametrize("mode", ["lease", "transaction"])
def test_a_snooze_whose_connection_is_lost_is_a_snooze_all_the_same(processes, mode):
    worker = processes.worker("--claim", mode, "--threads", "1")
    with held_up_at("snooze") as wait, connection.cursor() as cursor:
        job = ask.enqueue(what="snooze", name="x")
        cursor.execute("select pg_terminate_backend(%s)", [wait()])
    eventually(lambda: Job.objects.delayed().exists() and not Job.objects.running().exists())
    assert worker.stop() == 0
    job.refresh_from_db()
    assert (job.status, job.attempts, job.claims, job.errors) == ("pending", 0, 1, [])
    assert len(processes.ledger.ends("x")) == 1
