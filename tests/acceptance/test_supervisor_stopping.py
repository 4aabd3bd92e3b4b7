"""How a supervisor stops: once for each time that it is asked, in time, and with the true status."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from django_pgjobs.models import Job, Worker
from tests.app.probes import hold, hold_gil, orphan, record, start_program
from tests.processes import children_of
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("audited")
ASKING = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


def busy_supervisor(processes, *arguments, **options):
    """A supervisor whose child holds a job."""
    supervisor = processes.supervisor("--threads", "2", *arguments, **options)
    hold.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    return supervisor


def is_stopping() -> bool:
    return Worker.objects.exclude(stopping_at=None).filter(died_at=None).exists()


def assert_is_free_again():
    job = Job.objects.due().get()
    [entry] = job.errors
    assert entry["error"].endswith("ShutdownTimeout")
    assert (job.attempts, entry["attempt"]) == (1, 1)


@pytest.mark.parametrize("number", ASKING)
def test_a_signal_to_the_whole_group_counts_once(processes, number):
    supervisor = busy_supervisor(processes)
    supervisor.signal_group(number)
    eventually(is_stopping)
    record.enqueue(key="late")
    assert supervisor.alive
    processes.open_gate("x")
    assert supervisor.wait() == 0
    assert Job.objects.done().count() == len(processes.ledger.ends()) == 1
    assert list(Worker.objects.values_list("death", flat=True)) == ["stopped"]
    assert "died" not in supervisor.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_wait_for_running_jobs(processes, number):
    supervisor = busy_supervisor(processes)
    supervisor.signal_group(number)
    eventually(is_stopping)
    supervisor.signal_group(number)
    assert supervisor.wait(within=10) == 1
    assert_is_free_again()


def test_a_second_hangup_does_not_hurry(processes):
    supervisor = busy_supervisor(processes)
    supervisor.signal_group(signal.SIGHUP)
    eventually(is_stopping)
    supervisor.signal_group(signal.SIGHUP)
    processes.open_gate("x")
    assert supervisor.wait() == 0
    assert Job.objects.done().exists()


def test_nohup_keeps_it_from_hanging_up(processes):
    supervisor = busy_supervisor(processes, prefix=("nohup",))
    supervisor.signal_group(signal.SIGHUP)
    for n in range(1, 4):
        record.enqueue(key=str(n))
        eventually(lambda n=n: Job.objects.done().count() == n)
    processes.open_gate("x")
    assert supervisor.stop() == 0


def test_after_the_shutdown_timeout_running_jobs_go_back_at_once(processes):
    supervisor = busy_supervisor(processes, "--shutdown-timeout", "0.5")
    asked = time.monotonic()
    assert supervisor.stop() == 1
    assert time.monotonic() - asked < 10  # not the lease of 20
    assert_is_free_again()


def test_a_handler_that_holds_the_gil_is_killed_and_its_job_recorded(processes):
    supervisor = processes.supervisor("--shutdown-timeout", "0.5")
    hold_gil.using(max_attempts=1).enqueue(key="x", seconds=60)
    eventually(lambda: processes.ledger.starts("x"))
    asked = time.monotonic()
    assert supervisor.stop() == 1
    assert 2 < time.monotonic() - asked < 10
    job = Job.objects.failed().get()
    assert job.last_error.endswith("still busy at the end of the shutdown timeout.")


def test_a_stop_while_the_children_still_start_is_quick_and_clean(processes):
    supervisor = processes.supervisor("--processes", "2")
    eventually(lambda: supervisor.children)
    supervisor.signal_group(signal.SIGINT)
    assert supervisor.wait(within=10) == 0, supervisor.output
    assert "Traceback" not in supervisor.output
    assert not Worker.objects.filter(died_at=None).exists()


def test_children_leave_signals_to_their_supervisor_from_their_first_moment(processes):
    supervisor = processes.supervisor()
    [child] = eventually(lambda: supervisor.children)
    for number in ASKING:
        os.kill(child, number)
    record.enqueue(key="x")
    [end] = eventually(processes.ledger.ends)
    assert end.pid == child
    assert supervisor.stop() == 0


def test_programs_that_a_handler_starts_can_be_stopped_and_are_no_children(processes):
    supervisor = processes.supervisor()
    start_program.enqueue(key="x")
    job = eventually(lambda: Job.objects.done().first())
    assert job
    assert job.result == {"status": -signal.SIGTERM, "told": False}
    assert supervisor.stop() == 0


def test_several_processes_stop_together(processes):
    supervisor = processes.supervisor("--processes", "3", "--threads", "1")
    for n in range(3):
        hold.enqueue(key=str(n))
    eventually(lambda: len({entry.pid for entry in processes.ledger.starts()}) == 3)
    supervisor.signal(signal.SIGTERM)
    for n in range(3):
        processes.open_gate(n)
    assert supervisor.wait() == 0
    assert Job.objects.done().count() == 3


def namespaces_work() -> bool:
    try:
        command = ["unshare", "--pid", "--fork", "true"]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not namespaces_work(), reason="needs unshare, and the right to use it")
def test_as_process_1_it_reaps_what_it_adopts_and_stops(processes):
    prefix = ("unshare", "--pid", "--fork", "--kill-child=KILL")
    unshare = processes.supervisor(prefix=prefix)
    orphan.enqueue(key="x")
    eventually(lambda: processes.ledger.ends("x"))
    [first] = unshare.children
    eventually(lambda: len(children_of(first)) == 2)
    eventually(lambda: len(children_of(first)) == 1)
    eventually(lambda: not children_of(first, zombies=True))
    assert Worker.objects.get().pid < 100, "process ids are those of the new namespace"
    os.kill(first, signal.SIGTERM)
    assert unshare.wait() == 0
    assert Worker.objects.get().death == "stopped"
