"""A cancel reaches handlers at work in real workers, and each job ends in one way."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group

from django_pgjobs.models import Job
from tests.app.async_probes import ahold
from tests.app.context_probes import (
    arefuse,
    atidy,
    tell_steps,
    work,
    work_atomically,
    work_too_long,
)
from tests.app.probes import hold, record
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("audited")

SECOND = {"LEASE": 20, "HEARTBEAT": 2, "POLL": 1.0}


def started(processes, *keys):
    eventually(lambda: {entry.key for entry in processes.ledger.starts()} >= set(keys))


def ended(job, within=10):
    """Wait for the end and return the status, the attempts, and how many errors there are."""
    job.wait(3 * within)
    return job.status, job.attempts, len(job.errors)


def reply(job):
    answer = job.cancel()
    return answer.at_once, answer.requested, answer.skipped


def test_a_handler_that_looks_stops_soon_also_in_a_worker_that_is_full(processes):
    processes.worker("--threads", "2", pgjobs=SECOND)
    first, second = (work.enqueue(key=key) for key in "ab")
    started(processes, "a", "b")
    waiting = record.enqueue(key="c")

    assert reply(first) == (0, 1, 0)
    requested = Job.objects.get(pk=first.pk).cancel_requested_at.timestamp()

    assert ended(first) == ("cancelled", 1, 1)
    assert ended(waiting) == ("done", 1, 0)
    [stopped] = processes.ledger.entries("stopped")
    assert (stopped.key, stopped.at - requested < 1.5 * 2) == ("a", True)
    second.refresh_from_db()
    assert second.status == "running"
    processes.open_gate("b")
    assert ended(second) == ("done", 1, 0)


def test_async_handlers_are_cancelled_whether_they_take_a_context_or_not(processes):
    processes.worker("--threads", "1", "--async-concurrency", "2")
    held, tidied = ahold.enqueue(key="a"), atidy.enqueue(key="b")
    started(processes, "a", "b")
    assert Job.objects.filter(pk__in=[held.pk, tidied.pk]).cancel().requested == 2
    for job in held, tidied:
        assert ended(job) == ("cancelled", 1, 1)
        assert "JobCancelled" in job.last_error
        assert "await asyncio.sleep" in job.errors[0]["traceback"], "it says where it was"
    assert len(processes.ledger.entries("cancelled", "a")) == 1
    assert len(processes.ledger.entries("tidied", "b")) == 1
    assert ended(record.enqueue(key="next")) == ("done", 1, 0)


@pytest.mark.parametrize("kind", [hold, arefuse])
def test_a_handler_that_goes_on_completes_and_has_won(processes, kind):
    worker = processes.worker("--threads", "1")
    job = kind.enqueue(key="a")
    started(processes, "a")
    assert reply(job) == (0, 1, 0)
    if kind is hold:
        processes.open_gate("a")
    assert ended(job) == ("done", 1, 0)
    assert job.cancel_requested_at
    assert reply(job) == (0, 0, 0)
    assert worker.stop() == 0


def test_an_atomic_handler_looks_as_well_and_nothing_that_it_wrote_is_kept(processes):
    processes.worker("--threads", "1")
    job = work_atomically.enqueue(key="a")
    started(processes, "a")
    assert reply(job) == (0, 1, 0)
    assert ended(job) == ("cancelled", 1, 1)
    assert not Group.objects.exists()


def test_a_job_claimed_by_transaction_is_skipped_and_the_reply_says_so(processes):
    processes.worker("--threads", "1", "--claim", "transaction")
    job = work.enqueue(key="a")
    started(processes, "a")
    assert reply(job) == (0, 0, 1)
    processes.open_gate("a")
    assert ended(job) == ("done", 1, 0)
    assert job.cancel_requested_at is None


def test_a_timeout_after_a_request_cancels_for_its_own_reason(processes):
    processes.worker("--threads", "1")
    job = work_too_long.enqueue(key="a")
    started(processes, "a")
    assert reply(job) == (0, 1, 0)
    assert ended(job, within=20) == ("cancelled", 1, 1)
    assert "JobTimeout" in job.last_error
    assert processes.ledger.entries("heard", "a")


def test_it_can_be_retried_by_hand_and_then_runs_to_its_end(processes):
    processes.worker("--threads", "1")
    job = work.using(max_attempts=2).enqueue(key="a")
    started(processes, "a")
    job.cancel()
    assert ended(job) == ("cancelled", 1, 1)
    processes.open_gate("a")
    assert job.retry() == 1
    eventually(lambda: Job.objects.done().exists())
    assert ended(job) == ("done", 2, 1)


def test_progress_is_seen_while_the_handler_runs_and_its_last_word_in_the_end(processes):
    processes.worker("--threads", "1")
    job = tell_steps.enqueue(key="a", steps=30, seconds=0.1)
    seen = set()

    def done():
        job.refresh_from_db()
        seen.add(job.meta.get("progress", {}).get("text"))
        return job.status == "done"

    eventually(done, within=20)
    assert job.meta["progress"]["text"] == "30 of 30"
    assert job.meta["progress"]["fraction"] == 1
    assert 3 <= len(seen - {None}) <= 7, "once a second, and once in the end"
