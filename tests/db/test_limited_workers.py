"""Workers and what has limits: a worker in the process of the test."""

from __future__ import annotations

import itertools
import threading

import pytest
from django.core.management import CommandError, call_command

from django_pgjobs import InvalidOption, Limit, Rate, enqueue, get_job, job
from django_pgjobs.limited_claims import LimitedClaimer
from django_pgjobs.models import Job
from tests.db.limited import declare
from tests.db.rows import FUTURE, make

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kinds")]


def run(*arguments: str) -> None:
    call_command("runjobs", "--drain", *arguments, verbosity=0)


def declare_meeting(most: list[int], **options):
    """A kind that notes how many of it run at a time, and waits for as many others."""
    here, lock = [], threading.Lock()

    @job(kind="meet", **options)
    def meet(customer: int = 0) -> None:
        with lock:
            here.append(customer)
            most.append(len(here))
        enqueue("noop")  # something to do in between
        with lock:
            here.remove(customer)

    return meet


def test_a_worker_runs_all_there_is_and_keeps_the_limit():
    most: list[int] = []
    declare_meeting(most, concurrency=Limit(1)).enqueue_many({} for _ in range(12))

    run("--threads", "4")

    assert most == [1] * 12
    assert set(Job.objects.values_list("status", flat=True)) == {"done"}


def test_jobs_with_limits_and_without_take_turns():
    order: list[str] = []
    job(kind="limited", concurrency=Limit(50))(lambda: order.append("limited"))
    job(kind="free")(lambda: order.append("free"))
    for kind in ("limited", "free"):
        get_job(kind).enqueue_many({} for _ in range(400))

    run("--threads", "2")

    assert len(order) == 800
    assert set(order[:300]) == {"limited", "free"}


def test_a_drain_waits_for_the_tokens_of_a_rate():
    declare(rate=Rate(20, per=1, burst=0)).enqueue_many({} for _ in range(4))

    run()

    times = sorted(Job.objects.done().values_list("attempted_at", flat=True))
    steps = [(b - a).total_seconds() for a, b in itertools.pairwise(times)]
    assert len(times) == 4
    assert min(steps) >= 0.05


def test_a_drain_does_not_wait_for_what_a_limit_holds_back_elsewhere():
    call = declare(concurrency=Limit(1))
    call.enqueue()
    call.enqueue()
    Job.objects.filter(pk=Job.objects.earliest("id").pk).update(
        status="running", locked_at="2999-01-01T00:00Z", locked_by=99
    )

    run()

    assert Job.objects.pending().count() == 1


def test_a_worker_without_such_jobs_makes_no_statement_for_them(monkeypatch):
    looks: list[int] = []
    monkeypatch.setattr(LimitedClaimer, "claim", lambda *_: looks.append(1) or [])
    get_job("noop").enqueue_many({} for _ in range(50))

    run()

    assert looks == []
    assert Job.objects.done().count() == 50


def test_what_claims_by_transaction_says_that_jobs_with_keys_wait(settings, caplog):
    make(concurrency_key="mine")
    make(queue="ledger", concurrency_key="mine", run_at=FUTURE)
    settings.PGJOBS = {"QUEUES": {"ledger": {"claim": "transaction"}}, "POLL": 0.1}
    said = "Jobs with a concurrency key wait in a queue that this worker claims by transaction"

    run("--queues", "ledger")
    assert said not in caplog.text
    run("--claim", "transaction")

    assert caplog.text.count(said) == 1
    assert Job.objects.pending().count() == 2


def test_claiming_by_transaction_is_refused_where_there_are_limits(settings):
    declare("limited", queue="l", concurrency=Limit(1))
    settings.PGJOBS = {"QUEUES": {"mail": {"concurrency": 1}, "ledger": {"claim": "transaction"}}}

    with pytest.raises(CommandError, match="the kind 'limited', the queue 'mail'") as refused:
        run("--claim", "transaction")
    assert refused.value.returncode == 2
    run("--claim", "transaction", "--exclude", "l,mail")

    for give in (lambda j: j.enqueue(), lambda j: j.enqueue_many([{}])):
        with pytest.raises(InvalidOption, match="claimed by lease"):
            give(get_job("limited").using(queue="ledger"))
    assert not Job.objects.exists()
