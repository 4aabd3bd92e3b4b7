"""Reapers, pruners, workers and people at the same rows at once: nobody waits in a circle."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from functools import partial

import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from django_pgjobs import outcomes, reaper
from django_pgjobs.claims import Claimer
from django_pgjobs.figures import Figures
from django_pgjobs.leases import Lease
from django_pgjobs.models import Figure, Job
from django_pgjobs.outcomes import Done, Failed
from django_pgjobs.sessions import Session, execute_on_django
from tests import audit
from tests.app.jobs import noop
from tests.concurrency.actors import registered
from tests.db.rows import make

ERROR = {"attempt": 1, "error": "E", "message": "m", "traceback": "", "worker": "w"}
# By hand: the audit trigger looks at the columns of the lifecycle only.
AGE = """
update django_pgjobs_job set finished_at = now() - interval '40 days'
where finished_at is not null
and id in (select id from django_pgjobs_job limit 100 for update skip locked)
"""


def ask(sql: str) -> object:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0] if cursor.description else None


def deadlocks() -> object:
    ask("select pg_stat_force_next_flush()")
    return ask("select deadlocks from pg_stat_database where datname = current_database()")


def test_reapers_pruners_workers_and_bulk_verbs_never_deadlock(audited):
    noop.enqueue_many({} for _ in range(3_000))
    before, enough = deadlocks(), threading.Event()

    def work(round_: int, session: Session, claimer: Claimer, lease: Lease) -> None:
        claims = claimer.claim(session.execute, 50)
        results = [
            Done(claim) if claim.id % 3 else Failed(claim, ERROR, None if claim.id % 2 else 0.0)
            for claim in reversed(claims[: -5 * (round_ % 2) or None])
        ]
        outcomes.settle(session.execute, lease.worker, results)

    def dying_worker(round_: int, session: Session) -> None:
        lease = registered(session.execute)
        work(round_, session, Claimer("default", lease.worker), lease)
        lease.end(session.execute, "for this test")

    def reap(round_: int, session: Session) -> None:
        reaper.run(session.execute, older_than=60)

    def retry(round_: int, session: Session) -> None:
        order = "-id" if round_ % 2 else "id"
        Job.objects.failed().order_by(order).retry()
        Job.objects.cancelled().order_by(order).retry()

    def cancel(round_: int, session: Session) -> None:
        Job.objects.filter(id__in=Job.objects.order_by("?").values("id")[:20]).cancel()

    def age(round_: int, session: Session) -> None:
        session.execute(AGE, {})

    def repeat(duty: Callable[[int, Session], None]) -> int:
        session, round_ = Session("default"), 0
        try:
            while not enough.is_set():
                duty(round_, session)
                round_ += 1
        finally:
            session.close()
            connection.close()
        return round_

    duties = [dying_worker] * 3 + [reap] * 6 + [retry] * 2 + [cancel, age]
    with ThreadPoolExecutor(len(duties)) as threads:
        running = [threads.submit(repeat, duty) for duty in duties]
        enough.wait(4)  # the length of the test: it looks for what must not happen
        enough.set()
        rounds = [future.result(timeout=30) for future in running]
    assert min(rounds) > 3, rounds
    assert deadlocks() == before
    seen = {(c.old, c.new) for c in audit.changes()}
    assert {("running", "pending"), ("failed", "pending"), ("done", None)} <= seen, "all had work"


def finished(status: str, count: int, age: timedelta) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into django_pgjobs_job (kind, status, finished_at) "
            "select 'noop', %s, now() - %s from generate_series(1, %s)",
            [status, age, count],
        )


def left() -> dict[str, int]:
    return {s: Job.objects.filter(status=s).count() for s in ("done", "failed", "cancelled")}


def test_finished_jobs_are_kept_as_long_as_the_settings_say(transactional_db, settings):
    execute = execute_on_django("default")
    for status in ("done", "failed", "cancelled"):
        for days in (6, 8, 31):
            finished(status, 1, timedelta(days=days))
    noop.enqueue()
    assert reaper.run(execute).pruned == 4
    assert left() == {"done": 1, "failed": 2, "cancelled": 2}
    settings.PGJOBS = {"KEEP_DONE": None, "KEEP_FAILED": 7 * 86_400, "KEEP_CANCELLED": timedelta(0)}
    assert reaper.run(execute).pruned == 3
    assert left() == {"done": 1, "failed": 1, "cancelled": 0}
    settings.PGJOBS = {"KEEP_DONE": None, "KEEP_FAILED": None, "KEEP_CANCELLED": None}
    finished("failed", 1, timedelta(days=10_000))
    assert reaper.run(execute).pruned == 0
    assert Job.objects.pending().count() == 1


def test_pruning_goes_on_where_it_was_interrupted(transactional_db):
    finished("done", 2_500, timedelta(days=8))
    session = Session("default")
    batches = []
    while (counts := reaper.run(session.execute)).pruned:
        batches.append(counts.pruned)
        session.close()  # as if the process had ended here
    assert batches == [1_000, 1_000, 500]
    session.close()


def test_pruning_fits_into_a_short_statement_timeout(transactional_db, monkeypatch):
    finished("done", 20_000, timedelta(days=8))
    monkeypatch.setitem(
        connection.settings_dict, "OPTIONS", {"options": "-c statement_timeout=500"}
    )
    session = Session("default")
    try:
        assert session.execute("show statement_timeout", {}) == [("500ms",)]
        with pytest.raises(psycopg.errors.QueryCanceled):
            session.execute("select pg_sleep(2)", {})
        while reaper.run(session.execute).more:
            pass
    finally:
        session.close()
    assert left()["done"] == 0


def test_pruning_passes_a_row_that_somebody_holds(sessions):
    finished("done", 3, timedelta(days=8))
    held = Job.objects.first()
    assert held
    holder, pruner = sessions
    holder.begin()
    holder.run(
        lambda execute: execute(
            "select 1 from django_pgjobs_job where id = %(id)s for update", {"id": held.pk}
        )
    )
    pruner.begin()
    assert pruner.run(reaper.run).pruned == 2
    pruner.commit()
    holder.rollback()
    assert reaper.run(execute_on_django("default")).pruned == 1


def test_a_running_row_without_a_worker_is_lost_once_it_is_older_than_the_lease(transactional_db):
    """A row that somebody aged by hand, or whose worker's row was deleted."""
    old, fresh = make("running"), make("running", locked_at=timezone.now())
    assert reaper.run(execute_on_django("default")).jobs == 1
    old.refresh_from_db()
    fresh.refresh_from_db()
    assert (old.status, fresh.status) == ("pending", "running")


def test_an_attempt_that_lost_its_worker_counts_among_the_failed_ones(transactional_db):
    """Of those that had started: the others go on as if nothing had been."""
    noop.enqueue_many({} for _ in range(3))
    execute = execute_on_django("default")
    lease = registered(execute)
    started, *_ = Claimer("default", lease.worker).claim(execute, 3)
    lease.board.start(lease.board.take(), started.id)
    lease.end(execute, "for this test")
    assert reaper.run(execute).jobs == 3
    assert list(Figure.objects.values_list("queue", "kind", "done", "failed")) == [
        ("default", "noop", 0, 1)
    ]


def test_figures_that_cannot_be_written_hold_up_nobody(transactional_db, caplog):
    noop.enqueue()
    with closing(Session("default")) as session:
        lease = registered(session.execute)
        [claim] = Claimer("default", lease.worker).claim(session.execute, 1)
        lease.board.start(lease.board.take(), claim.id)
        lease.end(session.execute, "for this test")
        ask("alter table django_pgjobs_figure rename to renamed")
        try:
            assert reaper.run(session.execute, prune=False).jobs == 1
        finally:
            ask("alter table renamed rename to django_pgjobs_figure")
    assert Job.objects.get().attempts == 1
    assert "figures could not be written" in caplog.text


def test_figures_wait_no_longer_than_they_may(transactional_db, database_url, caplog):
    figures = Figures()
    figures.add_lost("q", "k")
    with closing(Session("default")) as session, psycopg.connect(database_url) as holder:
        holder.execute("lock table django_pgjobs_figure")
        figures.write(partial(session.execute, patience=0.05))
        assert "figures could not be written" in caplog.text
        holder.rollback()
        figures.write(session.execute)
    assert Figure.objects.get().failed == 1, "kept for the next time"
