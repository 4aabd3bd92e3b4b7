"""A worker in the process that asked for it: whatever ends it, nothing of it goes on."""

from __future__ import annotations

import threading

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from django_pgjobs import claims, enqueue
from django_pgjobs.attempts import Runner
from django_pgjobs.board import Board
from django_pgjobs.leases import Lease
from django_pgjobs.worker import RunnerFailed, Worker
from django_pgjobs.worker_options import WorkerOptions
from tests.db.rows import make_worker
from tests.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kinds")]


def threads_of_a_worker():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pgjobs-")]


def others_connected():
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from pg_stat_activity where datname = current_database() "
            "and backend_type = 'client backend' and pid != pg_backend_pid()"
        )
        return cursor.fetchone()[0]


@pytest.mark.timeout(60)  # if it does not end at all
def test_an_error_that_ends_a_worker_ends_its_threads_and_connections(monkeypatch):
    """Heartbeats that went on would hold its jobs for as long as the process lives."""

    def begin(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr(Runner, "_begin", begin)
    enqueue("noop")
    with pytest.raises(RunnerFailed):
        call_command("runjobs", "--threads", "1", verbosity=0)
    eventually(lambda: not threads_of_a_worker() and not others_connected())


def test_a_worker_that_never_reached_the_server_stops_when_it_is_told_to(monkeypatch, session):
    options = WorkerOptions(database="default", notify=False)
    lease = Lease(make_worker().id, "w", Board.create(options.most_held))
    worker = Worker(options, lease, session)

    def compile_claim(*_):
        raise psycopg.OperationalError("planted")

    wait = worker._collect

    def wait_and_be_told(seconds):
        worker.stop()
        wait(seconds)

    monkeypatch.setattr(claims, "Claimer", compile_claim)
    monkeypatch.setattr(worker, "_collect", wait_and_be_told)
    assert worker.run() == 0
