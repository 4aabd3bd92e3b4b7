"""The command `reapjobs`: once or in a loop, for real or not, with or without the project's handlers."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from django.db import connection

from django_pgjobs.models import Job, Worker
from tests.app.jobs import noop
from tests.waiting import eventually


@pytest.fixture
def lost(transactional_db) -> Job:
    """A job whose worker has been silent for 100 seconds, and an old finished one."""
    job = noop.enqueue()
    with connection.cursor() as cursor:
        cursor.execute(
            "with w as (insert into django_pgjobs_worker (host, pid, threads, heartbeat_at) "
            "values ('gone', 1, 1, now() - interval '100 s') returning id) "
            "update django_pgjobs_job set status = 'running', attempts = 1, claims = 1, "
            "locked_at = now(), locked_by = w.id from w"
        )
        cursor.execute(
            "insert into django_pgjobs_job (kind, status, finished_at) "
            "values ('noop', 'done', now() - %s)",
            [timedelta(days=8)],
        )
    return job


def status(job: Job) -> str:
    job.refresh_from_db()
    return job.status


def test_it_reaps_and_prunes_once_and_ends(processes, lost):
    process = processes.reaper("--verbosity", "1", pgjobs={})
    assert process.wait() == 0
    assert "Recorded the death of 1 worker, reaped 1 job, pruned 1 finished job." in process.output
    assert status(lost) == "pending"
    assert "no heartbeat for more than 60 s" in lost.last_error
    assert Job.objects.count() == 1
    assert Worker.objects.get().died_at


def test_a_dry_run_tells_and_changes_nothing(processes, lost):
    process = processes.reaper("--dry-run", pgjobs={})
    assert process.wait() == 0
    assert "Would record the death of 1 worker, reap 1 job, prune 1 finished job." in process.output
    assert status(lost) == "running"
    assert Job.objects.count() == 2
    assert Worker.objects.get().died_at is None


def test_older_than_overrides_the_lease(processes, lost):
    assert processes.reaper("--older-than", "1000", pgjobs={}).wait() == 0
    assert status(lost) == "running"
    assert processes.reaper("--older-than", "50", pgjobs={"LEASE": 1_000}).wait() == 0
    assert status(lost) == "pending"


def test_without_pruning_old_jobs_stay(processes, lost):
    assert processes.reaper("--no-prune", pgjobs={}).wait() == 0
    assert status(lost) == "pending"
    assert Job.objects.done().count() == 1


def test_with_an_interval_it_goes_on_until_it_is_told_to_stop(processes, lost):
    process = processes.reaper("--interval", "0.1", pgjobs={})
    eventually(lambda: status(lost) == "pending")
    Job.objects.filter(pk=lost.pk).update(
        status="running", locked_by=Worker.objects.get().pk, locked_at=lost.created_at
    )
    eventually(lambda: status(lost) == "pending")
    assert process.alive
    assert process.stop() == 0


@pytest.mark.parametrize("table", ["figure", "job"])
def test_a_locked_table_is_waited_for_no_longer_than_some_seconds(
    processes, lost, database_url, table
):
    with psycopg.connect(database_url) as other:
        other.execute(f"lock table django_pgjobs_{table}")
        process = processes.reaper("--verbosity", "1", pgjobs={})
        assert process.wait(within=20) == (1 if table == "job" else 0)
    if table == "job":
        assert "refuses a statement: canceling statement due to lock timeout" in process.output
    else:
        assert "The figures could not be pruned" in process.output
        assert "reaped 1 job, pruned 1 finished job" in process.output
        assert status(lost) == "pending"


def test_it_needs_no_handler_code(processes, lost, tmp_path):
    (tmp_path / "bare_settings.py").write_text(
        "from tests.settings_worker import *\n"
        "INSTALLED_APPS = ['django.contrib.contenttypes', 'django_pgjobs']\n"
        "MIDDLEWARE = []\n"
        "del ROOT_URLCONF\n"
    )
    process = processes.reaper("--no-prune", pgjobs={}, DJANGO_SETTINGS_MODULE="bare_settings")
    assert process.wait() == 0
    assert status(lost) == "pending"


def test_rows_that_plain_sql_left_running_are_recovered_by_their_age(processes, transactional_db):
    young, old = noop.enqueue(), noop.enqueue()
    for job, age in ((young, 10), (old, 100)):
        with connection.cursor() as cursor:
            cursor.execute(
                "update django_pgjobs_job set status = 'running', attempts = 1, claims = 1, "
                "locked_by = 987654, locked_at = now() - make_interval(secs => %s) where id = %s",
                [age, job.pk],
            )
    assert processes.reaper("--no-prune", pgjobs={}).wait() == 0
    assert (status(young), status(old)) == ("running", "pending")
    assert "is not registered" in old.last_error


def test_a_job_that_used_up_its_attempts_is_failed_and_says_why(processes, lost):
    Job.objects.filter(pk=lost.pk).update(max_attempts=1)
    assert processes.reaper("--no-prune", pgjobs={}).wait() == 0
    assert status(lost) == "failed"
    assert lost.last_error.startswith("The worker was lost")
    assert [entry["error"] for entry in lost.errors] == ["WorkerLost"]


@pytest.mark.parametrize("argument", ["--interval=0", "--older-than=-1", "--older-than=x"])
def test_wrong_arguments_are_a_usage_error(processes, argument):
    process = processes.reaper(argument, pgjobs={})
    assert process.wait() == 2
    assert "usage:" in process.output


def test_a_loop_outlives_a_refusal(processes, lost, database_url):
    process = processes.reaper("--interval", "0.05", "--no-prune", pgjobs={})
    eventually(lambda: status(lost) == "pending")
    with psycopg.connect(database_url) as other:
        other.execute("lock table django_pgjobs_job")
        eventually(lambda: "refuses a statement: canceling statement due to lock" in process.output)
    worker = Worker.objects.create(host="h", pid=1, threads=1)
    Worker.objects.filter(pk=worker.pk).update(heartbeat_at=worker.started_at - timedelta(hours=1))
    eventually(lambda: Worker.objects.get(pk=worker.pk).died_at)
    assert process.stop() == 0
