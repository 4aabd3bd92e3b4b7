"""Schedules fire on time in workers that have no thread left for what they enqueue."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models.functions import Now

from django_pgjobs.models import Job, Schedule
from tests.app.probes import compute, hold_gil
from tests.waiting import eventually

pytestmark = pytest.mark.newest

LATER = timedelta(seconds=8)  # after the heartbeat that tells a worker that there are schedules


@pytest.mark.parametrize(("supervised", "schedules"), [(True, 200), (False, 20)])
def test_ticks_come_on_time_while_every_thread_is_busy(processes, supervised, schedules):
    start = processes.supervisor if supervised else processes.worker
    busy = start("--threads", "1")
    if supervised:
        hold_gil.enqueue(key="x", seconds=30)  # the ticks are its supervisor's
    else:
        compute.enqueue(key="x", seconds=30)  # every step of a tick waits for its turn at the GIL
    eventually(lambda: processes.ledger.starts("x"), within=20)
    Schedule.objects.bulk_create(
        Schedule(
            name=f"s{n}",
            kind="noop",
            every=timedelta(minutes=1),
            next_at=Now() + LATER,
            since=Now(),
        )
        for n in range(schedules)
    )
    made = Job.objects.filter(kind="noop")
    eventually(lambda: made.count() == schedules or not busy.alive, within=20)
    late = [(job.created_at - job.run_at).total_seconds() for job in made]
    assert max(late) < 2 + 5, "5 s more are for a busy machine"
    assert not made.exclude(status="pending").exists(), "they wait for a thread, as they should"
    assert busy.alive
