"""With no fault, every job starts once: whatever the number of processes, threads and reapers."""

from __future__ import annotations

from collections import Counter

import pytest
from django.db import connection

from django_pgjobs.models import Job
from tests import audit
from tests.app.probes import hold, record
from tests.waiting import eventually

pytestmark = pytest.mark.newest


def statuses() -> Counter[str]:
    return Counter(Job.objects.values_list("status", flat=True))


def all_done(count: int) -> bool:
    return Job.objects.done().count() == count


def sessions_in_transaction() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'pgjobs-test-process' "
            "and xact_start is not null and state like 'idle%%'"
        )
        return cursor.fetchone()[0]


def starts(processes) -> list[str]:
    return [entry.key for entry in processes.ledger.starts()]


def test_four_workers_with_eight_threads_start_each_of_20000_jobs_once(processes, audited):
    workers = [processes.worker("--threads", "8") for _ in range(4)]
    reaper = processes.reaper("--interval", "0.1")
    assert all(process.worker for process in workers)
    record.enqueue_many({"key": str(n)} for n in range(20_000))
    eventually(lambda: all_done(20_000), within=60)
    started = starts(processes)
    assert len(started) == len(set(started)) == 20_000
    assert len({entry.pid for entry in processes.ledger.starts()}) == 4
    moves = audit.assert_lawful()
    released = moves["running", "pending"]
    assert moves["pending", "running"] == 20_000 + released
    assert not Job.objects.exclude(attempts=1).exists()
    assert [process.stop() for process in (*workers, reaper)] == [0] * 5


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_the_default_isolation_level_makes_no_difference(processes, audited, level):
    options = f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"
    workers = [processes.worker("--threads", "4", PGOPTIONS=options) for _ in range(2)]
    assert all(process.worker for process in workers)
    record.enqueue_many({"key": str(n)} for n in range(1_000))
    eventually(lambda: all_done(1_000), within=30)
    assert len(set(starts(processes))) == len(starts(processes)) == 1_000
    assert not Job.objects.exclude(attempts=1).exists()
    assert [process.stop() for process in workers] == [0, 0]
    assert not [line for process in workers for line in process.output.splitlines()[1:]]


def test_all_threads_of_one_worker_take_different_jobs(processes, audited):
    worker = processes.worker("--threads", "8", "--poll", "0.05")
    assert worker.worker
    for n in range(200):
        record.enqueue(key=f"single-{n}")
    eventually(lambda: all_done(200))
    record.enqueue_many({"key": f"many-{n}"} for n in range(200))
    eventually(lambda: all_done(400))
    started = starts(processes)
    assert len(started) == len(set(started)) == 400


def test_a_done_job_stays_done_while_workers_come_and_go(processes, audited):
    reapers = [processes.reaper("--interval", "0.1") for _ in range(2)]
    record.enqueue_many({"key": str(n), "seconds": 0.01} for n in range(3_000))
    for _ in range(2):
        workers = [processes.worker("--threads", "4") for _ in range(2)]
        assert all(process.worker for process in workers)
        before = len(processes.ledger.ends())
        eventually(lambda before=before: len(processes.ledger.ends()) > before + 100, within=20)
        assert [process.stop() for process in workers] == [0, 0]
    assert processes.worker("--drain").wait(within=40) == 0
    assert [process.stop() for process in reapers] == [0, 0]
    assert statuses() == {"done": 3_000}
    assert len(set(starts(processes))) == len(starts(processes)) == 3_000
    assert not [change for change in audit.changes() if change.old == "done"]


def test_prefetched_jobs_do_not_wait_behind_a_long_one_while_another_worker_idles(processes):
    busy = processes.worker("--threads", "1")
    assert busy.worker
    record.enqueue_many({"key": f"warm-{n}"} for n in range(300))  # short jobs: it claims ahead
    eventually(lambda: all_done(300))
    hold.enqueue(key="long")
    record.enqueue_many({"key": f"short-{n}"} for n in range(50))
    eventually(lambda: processes.ledger.starts("long"))
    other = processes.worker("--threads", "1")
    eventually(lambda: all_done(350), within=15)
    assert {e.pid for e in processes.ledger.starts() if e.key.startswith("short")} <= {
        busy.pid,
        other.pid,
    }
    assert not Job.objects.filter(attempts__gt=1).exists()
    processes.open_gate("long")
    assert [process.stop() for process in (busy, other)] == [0, 0]


@pytest.mark.usefixtures("audited")
def test_a_slow_job_of_a_living_worker_is_never_reaped(processes):
    fast = {"LEASE": 3, "HEARTBEAT": 0.5, "POLL": 0.1}
    worker = processes.worker("--threads", "10", pgjobs=fast)
    reapers = [processes.reaper("--interval", "0.1", pgjobs=fast) for _ in range(3)]
    for n in range(10):
        hold.enqueue(key=str(n))
    eventually(lambda: len(starts(processes)) == 10)
    first = worker.worker
    assert sessions_in_transaction() == 0
    eventually(
        lambda: (worker.worker.heartbeat_at - first.heartbeat_at).total_seconds() > 2 * 3, within=20
    )
    for n in range(10):
        processes.open_gate(n)
    eventually(lambda: all_done(10))
    assert sorted(starts(processes)) == sorted(map(str, range(10)))
    assert [process.stop() for process in (worker, *reapers)] == [0] * 4
    assert "lost" not in "".join(process.output for process in reapers)
