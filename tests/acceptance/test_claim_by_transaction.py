"""`--claim transaction`: the row is locked while the job runs, and whatever ends that gives it back."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.db.models import F

from django_pgjobs.models import Job, Worker
from tests.app.probes import hold, hold_in_sql, record, sleep_in_sql, write_row
from tests.app.timed_probes import overrun
from tests.processes import no_back_off
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("audited")
OURS = ("--claim", "transaction")


def all_done(count: int) -> bool:
    return Job.objects.done().count() == count


def groups() -> set[str]:
    return set(Group.objects.values_list("name", flat=True))


def test_a_running_job_reads_pending_and_is_left_alone(processes):
    workers = [processes.worker(*OURS, "--threads", "2") for _ in range(2)]
    job = hold.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    job.refresh_from_db()
    assert (job.status, job.attempts, job.claims, job.locked_by) == ("pending", 0, 0, None)
    record.enqueue_many({"key": f"other-{n}"} for n in range(20))
    eventually(lambda: all_done(20))
    assert job.cancel() == job.reschedule(job.run_at) == 0
    processes.open_gate("x")
    eventually(lambda: all_done(21))
    job.refresh_from_db()
    assert (job.attempts, job.claims, job.locked_by) == (1, 1, None)
    assert len(processes.ledger.starts("x")) == 1
    assert [worker.stop() for worker in workers] == [0, 0]


def test_writes_and_status_are_committed_together_or_not_at_all(processes):
    worker = processes.worker(*OURS)
    good = write_row.enqueue(name="good")
    bad = write_row.using(max_attempts=2).enqueue(name="bad", fail=True)
    eventually(lambda: no_back_off() or Job.objects.failed().exists())
    eventually(lambda: Job.objects.done().exists())
    assert groups() == {"good"}
    for job in (good, bad):
        job.refresh_from_db()
    assert (good.status, good.attempts) == ("done", 1)
    assert (bad.status, bad.attempts, len(bad.errors)) == ("failed", 2, 2)
    assert worker.stop() == 0


@pytest.mark.parametrize("arguments", [["--poll", "30"], ["--poll", "0.1", "--no-notify"]], ids=str)
def test_an_idle_worker_finds_jobs_by_wake_up_and_by_poll(processes, arguments):
    worker = processes.worker(*OURS, *arguments, PGJOBS_TEST_LOG_LEVEL="INFO")
    eventually(lambda: "--no-notify" in arguments or "Listening for wake-ups" in worker.output)
    for n in range(3):
        record.enqueue(key=str(n))
        eventually(lambda n=n: all_done(n + 1), within=5)
    assert worker.stop() == 0


def test_drain_ends_when_nothing_is_due(processes):
    record.enqueue_many({"key": str(n)} for n in range(100))
    record.using(delay=1000).enqueue(key="later")
    assert processes.worker(*OURS, "--drain", "--threads", "4").wait() == 0
    assert all_done(100)


def test_max_jobs_is_exact(processes):
    record.enqueue_many({"key": str(n)} for n in range(100))
    assert processes.worker(*OURS, "--max-jobs", "17", "--threads", "4").wait() == 0
    assert all_done(17)


def test_a_killed_child_gives_its_jobs_back_at_once_and_each_counts_an_attempt(processes):
    supervisor = processes.supervisor(
        *OURS, "--threads", "4", pgjobs={"LEASE": 600, "HEARTBEAT": 200}
    )
    for n in range(3):
        hold.enqueue(key=str(n))
    eventually(lambda: len(processes.ledger.starts()) == 3, within=20)
    [child] = supervisor.children
    os.kill(child, signal.SIGKILL)
    eventually(lambda: Job.objects.filter(attempts=1).count() == 3)
    eventually(lambda: no_back_off() or len(processes.ledger.starts()) == 6, within=20)
    for n in range(3):
        processes.open_gate(n)
    eventually(lambda: all_done(3))
    for job in Job.objects.all():
        assert (job.attempts, job.claims) == (2, 2)
        [error] = job.errors
        assert (error["error"], error["message"]) == (
            "WorkerLost",
            "The worker was lost: signal 9.",
        )
    assert supervisor.stop() == 0


def test_a_lost_connection_is_a_failed_attempt(processes):
    worker = processes.worker(*OURS, "--threads", "1")
    job = hold_in_sql.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity "
            "where datname = current_database() and application_name = 'pgjobs-test-process' and state = 'idle in transaction'"
        )
        assert cursor.fetchone() == (1,)
    processes.open_gate("x")
    eventually(lambda: Job.objects.filter(attempts=1).exists())
    eventually(lambda: no_back_off() or all_done(1))
    job.refresh_from_db()
    assert (job.attempts, job.claims, len(job.errors)) == (2, 2, 1)
    assert "terminating connection" in job.last_error
    assert worker.stop() == 0


def test_a_job_that_is_cut_off_by_the_stop_has_had_its_attempt(processes):
    worker = processes.worker(*OURS, "--shutdown-timeout", "0.2")
    job = hold.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    assert worker.stop() == 1
    job.refresh_from_db()
    assert (job.status, job.attempts, job.claims) == ("pending", 1, 1)
    assert "ShutdownTimeout" in job.last_error


def test_running_jobs_finish_at_a_stop_and_no_other_starts(processes):
    worker = processes.supervisor(*OURS)
    hold.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"), within=20)
    worker.signal(signal.SIGTERM)
    eventually(lambda: Worker.objects.filter(stopping_at__isnull=False).exists())
    record.enqueue(key="late")
    processes.open_gate("x")
    assert worker.wait() == 0
    assert all_done(1)
    assert Job.objects.pending().get().claims == 0


def test_four_workers_with_four_threads_start_each_of_2000_jobs_once(processes):
    workers = [processes.worker(*OURS, "--threads", "4") for _ in range(4)]
    assert all(process.worker for process in workers)
    record.enqueue_many({"key": str(n)} for n in range(2_000))
    eventually(lambda: all_done(2_000), within=60)
    starts = Counter(entry.key for entry in processes.ledger.starts())
    assert len(starts) == 2_000
    assert set(starts.values()) == {1}
    assert len({entry.pid for entry in processes.ledger.starts()}) == 4
    assert not Job.objects.exclude(attempts=1, claims=1).exists()
    assert [process.stop() for process in workers] == [0] * 4


@pytest.mark.parametrize("how", ["cpu", "query", "sleep"])
def test_a_timeout_ends_the_attempt_and_the_process_where_it_must(processes, how):
    notice = "-c client_connection_check_interval=100"
    supervisor = processes.supervisor(*OURS, "--threads", "2", PGOPTIONS=notice)
    job = overrun.using(max_attempts=2).enqueue(key="x", how=how)
    eventually(lambda: no_back_off() or Job.objects.failed().exists(), within=30)
    job.refresh_from_db()
    assert [entry["error"] for entry in job.errors] == ["django_pgjobs.exceptions.JobTimeout"] * 2
    assert (job.attempts, job.claims) == (2, 2)
    assert len(processes.ledger.starts("x")) == 2
    assert not processes.ledger.entries("overlap"), "a retry ran beside the old body"
    record.enqueue(key="next")
    eventually(lambda: all_done(1))
    assert supervisor.stop() == 0


def test_a_query_that_the_stop_cuts_off_has_had_its_attempt(processes):
    worker = processes.worker(*OURS, "--shutdown-timeout", "0.2")
    job = sleep_in_sql.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    assert worker.stop() == 1
    job.refresh_from_db()
    assert (job.status, job.attempts, job.claims) == ("pending", 1, 1)
    assert "ShutdownTimeout" in job.last_error


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_claims_that_collide_at_a_higher_isolation_level_are_repeated(processes, level):
    options = f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"
    workers = [processes.worker(*OURS, "--threads", "4", PGOPTIONS=options) for _ in range(2)]
    assert all(process.worker for process in workers)
    # At SERIALIZABLE every second one fails, with those that make it due again among the reasons.
    record.using(max_attempts=50).enqueue_many({"key": str(n)} for n in range(60))
    eventually(lambda: no_back_off() or all_done(60), within=60)
    assert [process.stop() for process in workers] == [0, 0]
    assert not Job.objects.exclude(attempts=F("claims")).exists()


def test_a_worker_has_one_connection_for_each_thread_beside_its_own(processes):
    worker = processes.worker(*OURS, "--threads", "3", "--no-notify")
    for n in range(5):
        hold.enqueue(key=str(n))
    eventually(lambda: len(processes.ledger.starts()) == 3)
    with connection.cursor() as cursor:
        cursor.execute(
            "select state, count(*) from pg_stat_activity "
            "where datname = current_database() and application_name = 'pgjobs-test-process' group by state"
        )
        # Its own are one for the pump, one for heartbeats.
        assert dict(cursor.fetchall()) == {"idle": 2, "idle in transaction": 3}
    for n in range(5):
        processes.open_gate(n)
    eventually(lambda: all_done(5))
    assert worker.stop() == 0
