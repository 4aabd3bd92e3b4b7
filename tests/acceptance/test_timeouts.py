"""A handler that does not end in time has failed, nothing runs beside its retry, and capacity returns."""

from __future__ import annotations

import time

import pytest

from django_pgjobs.models import Job
from tests.app.async_probes import ahold, aoverrun, nap
from tests.app.probes import hold, record
from tests.app.timed_probes import INTERRUPTIBLE, STUCK, in_time, overrun, swallow_once
from tests.processes import no_back_off
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("audited")

# Else a query goes on for long after its process has ended.
NOTICE = {"PGOPTIONS": "-c client_connection_check_interval=100"}
REASON = "django_pgjobs.exceptions.JobTimeout: The handler ran longer than its timeout of 1 s."


def enqueue_each(job_type, hows):
    """One job for each way to overrun, with two attempts; its key is its number."""
    return [
        job_type.using(max_attempts=2).enqueue(key=str(n), how=how) for n, how in enumerate(hows)
    ]


def fail_twice(processes, *jobs):
    """Both attempts of each fail of the timeout, one after the other, and no third one follows."""

    def failed():
        no_back_off()
        return Job.objects.failed().count() == len(jobs)

    eventually(failed, within=25)
    for job in jobs:
        job.refresh_from_db()
        errors = [entry["error"] for entry in job.errors]
        assert job.last_error == REASON, job.payload
        assert errors == ["django_pgjobs.exceptions.JobTimeout"] * 2, job.payload
        assert job.attempts == 2, job.payload
        assert len(processes.ledger.starts(job.payload["key"])) == 2, job.payload
    assert not processes.ledger.entries("overlap"), "a retry ran beside the old body"


def stopped(processes):
    return sorted(entry.key for entry in processes.ledger.entries("stopped"))


def next_one_is_quick(within=8.0):
    began = time.monotonic()
    job = record.enqueue(key="next")
    eventually(lambda: Job.objects.done().filter(pk=job.pk).exists())
    assert time.monotonic() - began < within


def test_python_code_is_interrupted_and_its_worker_goes_on(processes):
    supervisor = processes.supervisor("--threads", str(len(INTERRUPTIBLE)))
    fail_twice(processes, *enqueue_each(overrun, INTERRUPTIBLE))
    assert stopped(processes) == ["0", "0", "1", "1", "2", "2", "3", "3"]
    next_one_is_quick(within=1.0)
    assert len({entry.pid for entry in processes.ledger.starts()}) == 1, "nothing was replaced"
    assert supervisor.stop() == 0


@pytest.mark.parametrize("how", [*STUCK, "gil"])
def test_what_cannot_be_interrupted_has_its_process_replaced(processes, how):
    supervisor = processes.supervisor("--threads", "2", **NOTICE)
    fail_twice(processes, overrun.using(max_attempts=2).enqueue(key="x", how=how))
    next_one_is_quick()
    assert len({entry.pid for entry in processes.ledger.starts()}) == 3
    assert supervisor.stop() == 0


def test_twenty_in_a_row_leave_all_of_four_threads(processes):
    supervisor = processes.supervisor("--threads", "4")
    overrun.using(max_attempts=1).enqueue_many(
        {"key": f"x{n}", "how": "sleep" if n % 2 else "cpu"} for n in range(20)
    )
    eventually(lambda: Job.objects.failed().count() == 20, within=60)
    assert set(Job.objects.values_list("attempts", "last_error")) == {(1, REASON)}
    assert len(processes.ledger.starts()) == 20
    for n in range(4):
        hold.enqueue(key=str(n))
    eventually(lambda: all(processes.ledger.starts(n) for n in range(4)), within=5)
    for n in range(4):
        processes.open_gate(n)
    eventually(lambda: Job.objects.done().count() == 4)
    assert len(supervisor.children) == 1
    assert supervisor.stop() == 0


def test_the_others_of_a_process_finish_before_it_is_replaced(processes):
    processes.supervisor("--threads", "3")
    others = [hold.using(max_attempts=1).enqueue(key="a"), ahold.enqueue(key="b")]
    eventually(lambda: len(processes.ledger.starts()) == 2)
    bad = overrun.using(max_attempts=1).enqueue(key="x", how="sleep")
    eventually(lambda: processes.ledger.starts("x"))
    next_one_is_quick(within=5)
    [old] = {entry.pid for entry in processes.ledger.starts("x")}
    eventually(lambda: record_runs_elsewhere(processes, old))
    bad.refresh_from_db()
    assert bad.status == "running", "its body is still at work"
    for key in ("a", "b"):
        processes.open_gate(key)
    eventually(lambda: Job.objects.failed().exists())
    for job in others:
        job.refresh_from_db()
        assert (job.status, job.attempts) == ("done", 1)
    bad.refresh_from_db()
    assert bad.last_error == REASON


def record_runs_elsewhere(processes, old):
    record.enqueue(key="look")
    return any(entry.pid != old for entry in processes.ledger.starts("look"))


def test_a_handler_that_catches_the_interruption_and_returns_has_failed(processes):
    processes.supervisor()
    job = swallow_once.using(max_attempts=1).enqueue(key="x")
    eventually(lambda: Job.objects.failed().exists())
    job.refresh_from_db()
    assert (job.last_error, job.result) == (REASON, None)


def test_the_traceback_says_where_it_was(processes):
    processes.supervisor()
    job = overrun.using(max_attempts=1).enqueue(key="x", how="cpu")
    eventually(lambda: Job.objects.failed().exists())
    job.refresh_from_db()
    assert "_spin" in job.errors[0]["traceback"]


def test_those_that_end_in_time_are_not_touched(processes):
    worker = processes.worker("--threads", "2")
    in_time.enqueue_many({"key": str(n)} for n in range(500))
    eventually(lambda: Job.objects.done().count() == 500)
    assert worker.stop() == 0


def test_async_code_is_cancelled_and_its_worker_goes_on(processes):
    supervisor = processes.supervisor("--threads", "1")
    fail_twice(processes, *enqueue_each(aoverrun, ("sleep", "return late", "task")))
    assert stopped(processes) == ["0", "0", "1", "1", "2", "2"]
    next_one_is_quick(within=1.0)
    assert len({entry.pid for entry in processes.ledger.starts()}) == 1
    assert supervisor.stop() == 0


@pytest.mark.parametrize("how", ["swallow", "query", "thread", "block"])
def test_async_code_that_is_not_cancelled_has_its_process_replaced(processes, how):
    supervisor = processes.supervisor("--threads", "1", **NOTICE)
    fail_twice(processes, aoverrun.using(max_attempts=2).enqueue(key="x", how=how))
    next_one_is_quick()
    assert len({entry.pid for entry in processes.ledger.starts()}) == 3
    assert supervisor.stop() == 0


def test_the_neighbours_of_one_that_blocks_the_loop_start_anew(processes):
    processes.supervisor("--threads", "1")
    neighbour = nap.using(max_attempts=3).enqueue(key="n", seconds=2)
    eventually(lambda: processes.ledger.starts("n"))
    bad = aoverrun.using(max_attempts=1).enqueue(key="x", how="block")
    eventually(lambda: Job.objects.failed().exists())

    def done():
        no_back_off()
        return Job.objects.done().filter(pk=neighbour.pk).exists()

    eventually(done)
    neighbour.refresh_from_db()
    assert "did not stop at its timeout" in neighbour.errors[0]["message"]
    bad.refresh_from_db()
    assert bad.last_error == REASON


@pytest.mark.parametrize("job_type", [overrun, aoverrun])
def test_without_a_supervisor_the_worker_records_it_and_exits(processes, job_type):
    how = "sleep" if job_type is overrun else "block"
    worker = processes.worker("--threads", "2")
    job_type.using(max_attempts=2).enqueue(key="x", how=how)
    assert worker.wait() == 1
    job = Job.objects.pending().get()
    assert (job.attempts, job.last_error) == (1, REASON)
