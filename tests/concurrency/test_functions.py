"""The SQL functions of maintenance beside other sessions: nothing is waited for, and nobody loses a job."""

from __future__ import annotations

import psycopg
import pytest

from django_pgjobs.leases import Lease, renew
from django_pgjobs.models import Figure, Job, Worker
from tests.app.jobs import noop
from tests.concurrency.actors import registered
from tests.db.rows import AGO, claimed, execute, make

REAP = "select job from django_pgjobs_reap('60 seconds')"
PRUNE = "select what, pruned from django_pgjobs_prune()"


@pytest.fixture
def silent_worker(audited) -> Lease:
    lease = registered(execute)
    Worker.objects.update(heartbeat_at=AGO)
    return lease


def test_of_two_that_reap_at_once_one_takes_the_job(sessions, silent_worker):
    noop.enqueue()
    [claim] = claimed(worker=silent_worker.worker)
    board = silent_worker.board
    board.start(board.take(), claim.id)
    silent_worker.end(execute, "for this test")
    first, second = sessions
    for session in sessions:
        session.begin()
    assert first.run(lambda execute: execute(REAP, {})) == [(claim.id,)]
    assert second.run(lambda execute: execute(REAP, {})) == []
    first.commit()
    second.commit()
    assert len(Job.objects.get().errors) == 1


def test_a_job_that_its_worker_is_settling_is_passed_by(sessions, silent_worker):
    noop.enqueue()
    [claim] = claimed(worker=silent_worker.worker)
    settling, reaping = sessions
    settling.begin()
    settling.do(lambda: Job.objects.select_for_update().get(pk=claim.id))
    reaping.begin()
    assert reaping.run(lambda execute: execute(REAP, {})) == []
    reaping.commit()
    settling.rollback()
    assert execute(REAP, {}) == [(claim.id,)]


def test_a_heartbeat_on_its_way_saves_its_worker(sessions, silent_worker):
    noop.enqueue()
    claimed(worker=silent_worker.worker)
    living, reaping = sessions
    living.begin()
    living.run(lambda execute: renew(execute, [silent_worker], stopping=False))
    reaping.begin()
    assert reaping.run(lambda execute: execute(REAP, {})) == []
    reaping.commit()
    living.commit()
    assert execute(REAP, {}) == []
    assert Job.objects.running().count() == 1
    assert Worker.objects.get().died_at is None


def test_pruning_passes_a_row_that_somebody_holds(sessions):
    held, _ = (make("done") for _ in range(2))
    holder, pruning = sessions
    holder.begin()
    holder.do(lambda: Job.objects.select_for_update().get(pk=held.pk))
    pruning.begin()
    assert dict(pruning.run(lambda execute: execute(PRUNE, {})))["done"] == 1
    pruning.commit()
    holder.rollback()
    assert Job.objects.get() == held


def test_figures_that_somebody_has_locked_hold_up_no_pruning(transactional_db, database_url):
    make("done")
    Figure.objects.create(minute=AGO, queue="q", kind="k")
    with psycopg.connect(database_url) as holder, psycopg.connect(database_url) as pruning:
        holder.execute("lock table django_pgjobs_figure")
        pruning.execute("set lock_timeout = '100ms'")
        told = dict(pruning.execute(PRUNE).fetchall())
    assert told["done"] == 1
    assert told["figures"] is None
    assert Figure.objects.count() == 1
    assert not Job.objects.exists()
