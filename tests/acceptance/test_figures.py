"""What workers add up of the jobs that they run."""

from __future__ import annotations

import pytest
from django.db.models import Sum

from django_pgjobs.models import Figure, Job
from tests.app.async_probes import awrite
from tests.app.probes import leave, record

pytestmark = pytest.mark.usefixtures("audited")


@pytest.mark.parametrize("claim", ["lease", "transaction"])
def test_a_worker_writes_down_what_it_has_done_and_what_has_failed(processes, claim):
    record.using(queue="a").enqueue_many({"key": str(n), "seconds": 0.01} for n in range(30))
    record.using(queue="b").enqueue(key="x")
    leave.using(queue="b", max_attempts=1).enqueue(key="y", how="sys.exit")
    if claim == "lease":
        awrite.using(queue="b").enqueue(name="z")
    worker = processes.supervisor("--drain", "--threads", "2", "--claim", claim)
    assert worker.wait() == 0
    assert Job.objects.failed().count() == 1
    found = {
        (row["queue"], row["kind"]): (row["all_done"], row["all_failed"])
        for row in Figure.objects.values("queue", "kind").annotate(
            all_done=Sum("done"), all_failed=Sum("failed")
        )
    }
    asynchronous = {("b", awrite.kind): (1, 0)} if claim == "lease" else {}
    assert found == {
        ("a", record.kind): (30, 0),
        ("b", record.kind): (1, 0),
        ("b", leave.kind): (0, 1),
        **asynchronous,
    }
    sums = Figure.objects.filter(queue="a").aggregate(run=Sum("run"), wait=Sum("wait"))
    assert 0.3 <= sums["run"] < 30
    assert 0 < sums["wait"] < 30 * 60
