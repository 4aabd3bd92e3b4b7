"""How a worker stops: what runs may finish, what has not started is given back, nothing is forgotten."""

from __future__ import annotations

import signal

import pytest

from django_pgjobs.models import Job, Worker
from tests.app.probes import hold, record
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("audited")


def busy_worker(processes, *arguments, jobs=2, threads="2"):
    """A worker all of whose threads hold a job, beside as many that wait."""
    worker = processes.worker("--threads", threads, *arguments)
    for n in range(jobs):
        hold.enqueue(key=str(n))
    eventually(lambda: len(processes.ledger.starts()) == int(threads))
    return worker


def is_stopping(worker) -> bool:
    return worker.worker.stopping_at is not None


def assert_is_stopping(processes, worker):
    """See it in what the worker does, for it says so only with its next heartbeat."""
    eventually(lambda: is_stopping(worker))
    assert worker.alive


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_jobs_finish_and_no_other_starts(processes, number):
    worker = busy_worker(processes)
    worker.signal(number)
    assert_is_stopping(processes, worker)
    record.enqueue(key="late")
    for n in range(2):
        processes.open_gate(n)
    assert worker.wait() == 0
    assert Job.objects.done().count() == 2
    late = Job.objects.pending().get()
    assert (late.attempts, late.claims) == (0, 0)
    assert Worker.objects.get(pid=worker.pid).death == "stopped"


def test_claimed_jobs_that_have_not_started_are_given_back_with_their_attempt(processes):
    record.using(priority=1).enqueue_many({"key": f"short-{n}"} for n in range(300))
    hold.enqueue(key="long")
    record.using(priority=-1).enqueue_many({"key": f"waiting-{n}"} for n in range(20))
    # So long a poll keeps it from giving them back by itself.
    worker = processes.worker("--threads", "1", "--poll", "30")
    eventually(lambda: processes.ledger.starts("long"))
    waiting = Job.objects.filter(payload__key__startswith="waiting")
    assert waiting.running().exists(), "after short jobs the worker claims ahead"
    worker.signal(signal.SIGTERM)
    eventually(lambda: waiting.pending().count() == 20)
    processes.open_gate("long")
    assert worker.wait() == 0
    assert set(waiting.values_list("status", "attempts", "attempted_at")) == {("pending", 0, None)}
    assert not [e for e in processes.ledger.starts() if e.key.startswith("waiting")]


def test_a_second_signal_does_not_wait_for_running_jobs(processes):
    worker = busy_worker(processes)
    worker.signal(signal.SIGTERM)
    assert_is_stopping(processes, worker)
    worker.signal(signal.SIGTERM)
    assert worker.wait(within=10) == 1
    assert_is_free_again()


def test_after_the_shutdown_timeout_running_jobs_go_back_at_once(processes):
    worker = busy_worker(processes, "--shutdown-timeout", "0.5")
    worker.signal(signal.SIGTERM)
    assert worker.wait(within=10) == 1
    assert_is_free_again()
    for n in range(2):
        processes.open_gate(n)
    other = processes.worker("--drain")
    assert other.wait() == 0
    assert set(Job.objects.values_list("status", "attempts")) == {("done", 2)}


def assert_is_free_again():
    assert Job.objects.due().count() == 2, "another worker can take them now"
    for job in Job.objects.all():
        assert (job.attempts, job.locked_by) == (1, None)
        [entry] = job.errors
        assert entry["error"].endswith("ShutdownTimeout")
        assert entry["attempt"] == 1


def test_a_last_attempt_that_is_cut_short_at_the_shutdown_is_a_failure(processes):
    worker = processes.worker("--shutdown-timeout", "0.2")
    hold.using(max_attempts=1).enqueue(key="x")
    eventually(processes.ledger.starts)
    worker.signal(signal.SIGTERM)
    assert worker.wait(within=10) == 1
    assert "had to stop while the handler was running" in Job.objects.failed().get().last_error


def test_a_drain_ends_when_nothing_is_due(processes):
    record.enqueue_many({"key": str(n)} for n in range(50))
    record.using(delay=3_600).enqueue(key="later")
    worker = processes.worker("--drain")
    assert worker.wait() == 0
    assert Job.objects.done().count() == 50
    assert Job.objects.delayed().count() == 1


def test_a_drain_waits_for_its_running_jobs(processes):
    hold.enqueue(key="x")
    worker = processes.worker("--drain")
    eventually(lambda: processes.ledger.starts("x"))
    processes.open_gate("x")
    assert worker.wait() == 0
    assert Job.objects.done().count() == 1


def test_wrong_arguments_are_a_usage_error(processes):
    wrong = [
        ("--threads", "0"),
        ("--threads", "many"),
        ("--queues", ""),
        ("--queues", "a", "--exclude", "b"),
        ("--poll", "nan"),
        ("--shutdown-timeout", "-1"),
        ("--no-such-option",),
    ]
    workers = [processes.worker(*arguments) for arguments in wrong]
    for worker, arguments in zip(workers, wrong, strict=True):
        assert worker.wait() == 2, arguments
        _, _, error = worker.output.partition("error: ")
        assert any(argument in error for argument in arguments if argument[:2] == "--"), error
        assert "usage:" in worker.output
        assert "Traceback" not in worker.output


@pytest.mark.parametrize("pgjobs", [{"HEARTBEAT": 30, "LEASE": 30}, {"HEARTBEAT": 15, "LEASE": 30}])
def test_a_heartbeat_too_slow_for_the_lease_is_refused_at_the_start(processes, pgjobs):
    worker = processes.worker(pgjobs=pgjobs)
    assert worker.wait() != 0
    assert "pgjobs.E004" in worker.output


def test_only_the_named_queues_are_served(processes):
    for queue in ("a", "b", "c"):
        record.using(queue=queue).enqueue(key=queue)
    assert processes.worker("--queues", "a,b", "--drain").wait() == 0
    assert {e.key for e in processes.ledger.starts()} == {"a", "b"}
    assert processes.worker("--exclude", "c", "--drain").wait() == 0
    assert {e.key for e in processes.ledger.starts()} == {"a", "b"}
    assert processes.worker("--exclude", "a,b", "--drain").wait() == 0
    assert {e.key for e in processes.ledger.starts()} == {"a", "b", "c"}
