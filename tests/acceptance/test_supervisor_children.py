"""Children come and go: replaced in time, restarted with patience, and given up where it is hopeless."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from django_pgjobs.models import Job, Worker
from tests import audit
from tests.app.probes import hold, leave, record
from tests.processes import FAST
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("audited")


def enqueue(jobs: int) -> None:
    record.enqueue_many({"key": str(n)} for n in range(jobs))


def assert_each_ran_once(jobs: int) -> None:
    assert Counter(Job.objects.values_list("status", "attempts")) == {("done", 1): jobs}
    assert not [change for change in audit.changes() if change.given_back]


def test_a_worker_is_replaced_after_so_many_jobs(processes):
    enqueue(100)
    supervisor = processes.supervisor("--max-jobs", "30", "--drain")
    eventually(lambda: Job.objects.done().exists())
    assert supervisor.wait() == 0
    assert Job.objects.done().count() == 30, "a drain ends with its one process"
    supervisor = processes.supervisor("--max-jobs", "30")
    eventually(lambda: Job.objects.done().count() == 100)
    assert_each_ran_once(100)
    assert set(Counter(entry.pid for entry in processes.ledger.starts()).values()) == {10, 30}
    assert supervisor.stop() == 0
    assert "died" not in supervisor.output


def test_the_replacement_works_while_the_old_one_finishes_however_long_that_takes(processes):
    options = ("--max-jobs", "1", "--threads", "1", "--shutdown-timeout", "0.2")
    supervisor = processes.supervisor(*options)
    hold.enqueue(key="long")
    eventually(lambda: processes.ledger.starts("long"))
    for n in range(3):
        record.enqueue(key=str(n))
        eventually(lambda n=n: processes.ledger.ends(n))
    assert not processes.ledger.ends("long")
    processes.open_gate("long")
    eventually(lambda: Job.objects.done().count() == 4)
    assert_each_ran_once(4)
    assert supervisor.stop() == 0


def test_a_worker_that_grew_too_big_is_replaced(processes):
    supervisor = processes.supervisor("--max-rss", "1", pgjobs={"HEARTBEAT": 0.1, "LEASE": 20})
    for n in range(3):
        record.enqueue(key=str(n))
        eventually(lambda n=n: processes.ledger.ends(n))
        old = processes.ledger.ends(n)[0].pid
        eventually(lambda old=old: old not in supervisor.children)
    eventually(lambda: Job.objects.done().count() == 3)
    assert_each_ran_once(3)
    assert len({entry.pid for entry in processes.ledger.starts()}) == 3
    assert supervisor.stop() == 0
    assert "died" not in supervisor.output


def test_without_a_supervisor_the_worker_exits_after_so_many_jobs(processes):
    enqueue(20)
    assert processes.worker("--max-jobs", "5").wait() == 0
    assert Job.objects.done().count() == 5
    assert set(Job.objects.pending().values_list("attempts", flat=True)) == {0}


def test_a_drain_of_so_many_jobs_is_the_same_for_each_process(processes):
    enqueue(20)
    assert processes.worker("--drain", "--max-jobs", "4").wait() == 0
    assert Job.objects.done().count() == 4
    assert processes.supervisor("--drain", "--max-jobs", "4", "--processes", "2").wait() == 0
    assert 8 <= Job.objects.done().count() <= 12
    assert processes.supervisor("--drain", "--max-jobs", "50").wait() == 0
    assert_each_ran_once(20)


def test_a_drain_of_so_many_jobs_does_no_more_of_them_though_they_kill_their_process(processes):
    for n in range(8):
        leave.enqueue(key=str(n), how="kill")
    options = ("--drain", "--max-jobs", "3", "--threads", "1")
    assert processes.supervisor(*options).wait() == 1
    assert 1 <= len(processes.ledger.starts()) <= 3
    assert Job.objects.pending().count() == 8, "no job is lost"


BROKEN = """
import os, sys, time
if "PGJOBS_CHILD" in os.environ:
    with open("{starts}", "a") as file:
        file.write(f"{{time.monotonic()}}\\n")
    sys.exit("nothing works here")
"""


def test_children_that_can_never_start_are_given_up_after_some_patience(processes, tmp_path):
    folder = tmp_path / "broken_app"
    folder.mkdir()
    (folder / "__init__.py").touch()
    starts = tmp_path / "starts"
    (folder / "jobs.py").write_text(BROKEN.format(starts=starts))
    supervisor = processes.supervisor("--processes", "2", PGJOBS_TEST_APPS="broken_app")
    assert supervisor.wait(within=40) == 1
    assert "nothing works here" in supervisor.output
    assert "No worker could be started in 5 tries: giving up." in supervisor.output
    times = [float(line) for line in starts.read_text().splitlines()]
    assert len(times) in (9, 10), "the two of a try count once; the last is not waited for"
    firsts = times[::2]
    gaps = [later - earlier for earlier, later in pairwise(firsts)]
    assert all(gap >= least for gap, least in zip(gaps, (0.5, 1, 2, 4), strict=True)), gaps
    assert not Worker.objects.filter(died_at=None).exists()


def test_failures_to_start_are_forgotten_once_one_has_started(processes):
    supervisor = processes.supervisor()
    for n in range(6):  # one more than are borne in a row
        [newborn] = eventually(lambda: supervisor.children)
        os.kill(newborn, signal.SIGKILL)
        eventually(lambda newborn=newborn: supervisor.children not in ([], [newborn]), within=5)
        record.enqueue(key=str(n))
        eventually(lambda n=n: processes.ledger.ends(n))
        os.kill(processes.ledger.ends(n)[0].pid, signal.SIGKILL)
        eventually(lambda n=n: supervisor.output.count("died: signal 9") == 2 * (n + 1))
    assert supervisor.stop() == 0


def test_children_that_are_taken_for_dead_while_they_start_are_no_failed_starts(processes):
    """As in an outage of the database: the heartbeats that are missing are the supervisor's."""
    supervisor = processes.supervisor(pgjobs=FAST)

    def bury() -> bool:
        assert supervisor.alive, supervisor.output
        Worker.objects.filter(died_at=None).update(died_at=timezone.now(), death="no heartbeat")
        return supervisor.output.count("died: taken for dead") >= 7

    eventually(bury, within=30)
    record.enqueue(key="x")
    eventually(lambda: Job.objects.done().exists(), within=20)
    assert supervisor.stop() == 0


def test_a_drain_goes_on_after_a_death(processes):
    hold.using(max_attempts=1).enqueue(key="victim")
    enqueue(50)
    supervisor = processes.supervisor("--drain", "--threads", "1")
    [start] = eventually(lambda: processes.ledger.starts("victim"))
    os.kill(start.pid, signal.SIGKILL)
    assert supervisor.wait() == 0
    left = Job.objects.exclude(status="done")
    assert [(job.payload["key"], job.status) for job in left] == [("victim", "failed")]


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def sessions() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from pg_stat_activity where datname = current_database() "
            "and application_name = 'pgjobs-test-process'"
        )
        return cursor.fetchone()[0]


def resident(pid: int) -> float:
    """The memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def test_it_needs_little_and_leaks_nothing(processes):
    supervisor = processes.supervisor()
    enqueue(1_000)
    eventually(lambda: Job.objects.done().count() == 1_000)
    before = descriptors(supervisor.pid)
    used = resident(supervisor.pid) + sum(resident(pid) for pid in supervisor.children)
    measured = any(
        name.startswith("COVERAGE_PROCESS") for name in os.environ
    )  # which takes memory too
    assert used <= (145 if measured else 130), f"{used} MB"
    assert sessions() <= 3, "the supervisor's one, and the worker's own two"
    for _ in range(3):
        worker = supervisor.worker
        os.kill(worker.pid, signal.SIGKILL)
        eventually(lambda pk=worker.pk: supervisor.worker.pk != pk)
    enqueue(10)
    eventually(lambda: Job.objects.done().count() == 1_010)
    eventually(lambda: descriptors(supervisor.pid) <= before)
    assert len(supervisor.children) == 1
    assert supervisor.stop() == 0


def cpu_seconds(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_worker_whose_threads_are_all_busy_rests(processes):
    for n in range(3):
        hold.enqueue(key=str(n))
    supervisor = processes.supervisor("--threads", "2")
    eventually(lambda: len(processes.ledger.starts()) == 2)
    worker = supervisor.worker
    used, began = cpu_seconds(worker.pid), time.monotonic()
    eventually(lambda: time.monotonic() - began > 4)  # a full claim is due after 1 s
    assert cpu_seconds(worker.pid) - used < 1, "it goes round and round: that takes all 4 seconds"
    for n in range(3):
        processes.open_gate(n)
    eventually(lambda: Job.objects.done().count() == 3)
    assert supervisor.stop() == 0
