"""Jobs of queues that are claimed by transaction, run by a worker in the process of the test."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.utils import timezone

from django_pgjobs import execution, job, sessions, transactions
from django_pgjobs.models import Job, Queue
from django_pgjobs.testing import drain
from django_pgjobs.transactions import Transactions
from django_pgjobs.worker_options import WorkerOptions
from tests.db.sessions import in_thread
from tests.hold_ups import held_up_at
from tests.processes import no_back_off
from tests.waiting import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kinds")]


@pytest.fixture(autouse=True)
def ledger_queue(settings):
    settings.PGJOBS = {"QUEUES": {"ledger": {"claim": "transaction"}}, "POLL": 0.1}


def run(*arguments: str) -> None:
    arguments = ("--threads", "2", *arguments)
    call_command("runjobs", "--drain", *arguments, verbosity=0)


def groups() -> set[str]:
    return set(Group.objects.values_list("name", flat=True))


def declare_look():
    @job(queue="ledger")
    def glance():
        return connection.in_atomic_block

    return glance


def test_each_queue_is_claimed_as_the_settings_say():
    look = declare_look()
    look.enqueue()
    look.using(queue="other").enqueue()

    run()

    assert dict(Job.objects.done().values_list("queue", "result")) == {
        "ledger": True,
        "other": False,
    }


@pytest.mark.parametrize(("mode", "result"), [("lease", False), ("transaction", True)])
def test_the_option_of_the_command_decides_for_every_queue(mode, result):
    look = declare_look()
    look.enqueue()
    look.using(queue="other").enqueue()

    run("--claim", mode)

    assert list(Job.objects.done().values_list("result", flat=True)) == [result, result]


def test_jobs_that_jobs_of_the_other_kind_enqueue_are_run_too():
    @job
    def count_down(n):
        if n:
            count_down.using(queue="ledger" if n % 2 else "default").enqueue(n - 1)

    count_down.enqueue(20)
    run()
    assert Job.objects.done().count() == 21


def test_a_paused_queue_is_left_alone():
    look = declare_look()
    look.enqueue()
    Queue.objects.create(name="ledger", paused_at=timezone.now())

    run()

    assert Job.objects.pending().filter(claims=0).count() == 1


def test_an_async_handler_fails_at_once_and_says_what_to_do():
    @job(queue="ledger")
    async def later(): ...

    later.enqueue()
    run()
    failed = Job.objects.failed().get()
    assert failed.attempts == 1
    assert "Make it sync, or give it a queue claimed by lease." in failed.last_error


def break_off():
    connection.connection.close()


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda: 1 / 0, "ZeroDivisionError"),
        (connections.close_all, "TransactionBroken"),
        (break_off, "OperationalError"),
        (lambda: transaction.atomic().__enter__(), "TransactionLeftOpen"),
    ],
    ids=["error", "closed", "lost", "left open"],
)
def test_whatever_breaks_the_transaction_the_attempt_counts_once_and_nothing_is_left(end, error):
    attempts = []

    @job(queue="ledger")
    def write():
        attempts.append("started")
        Group.objects.create(name="a")
        if len(attempts) == 1:
            end()

    enqueued = write.enqueue()
    run("--threads", "1")  # once the connection is gone another thread may take the job
    enqueued.refresh_from_db()
    assert (enqueued.status, enqueued.attempts, enqueued.claims) == ("pending", 1, 1)
    assert error in enqueued.last_error
    assert groups() == set()
    no_back_off()
    run()
    enqueued.refresh_from_db()
    assert (enqueued.status, enqueued.attempts, enqueued.claims) == ("done", 2, 2)
    assert len(enqueued.errors) == 1
    assert groups() == {"a"}


def test_a_callback_that_fails_after_the_commit_is_logged_and_changes_nothing(caplog):
    @job(queue="ledger")
    def write():
        Group.objects.create(name="a")
        transaction.on_commit(lambda: 1 / 0)

    write.enqueue()
    run()
    assert Job.objects.done().count() == 1
    assert groups() == {"a"}
    [record] = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "is settled, but a function that it gave to on_commit() failed" in record.getMessage()


def test_a_commit_whose_answer_is_lost_is_done_and_counts_once(caplog):
    opened = []

    @job(queue="ledger")
    def write():
        Group.objects.create(name="a")
        opened.append(connections["default"])

    enqueued = write.enqueue()
    with in_thread(lambda: run("--threads", "1")):
        with held_up_at("commit") as wait:
            wait()
            sessions._shut(opened[0])
            eventually(lambda: "failed in attempt 1" in caplog.text)
            assert (groups(), Job.objects.get().status) == (set(), "pending")
        eventually(Job.objects.done().exists)
    enqueued.refresh_from_db()
    assert (enqueued.status, enqueued.attempts, enqueued.claims) == ("done", 1, 1)
    assert groups() == {"a"}
    assert len(opened) == 1


def test_a_job_whose_commit_was_refused_is_counted_before_another_thread_takes_it(monkeypatch):
    starts, lookers, refused = [], [], threading.Event()
    failed, claim = execution.failed, Transactions._claim

    @job(queue="ledger")
    def write():
        starts.append(threading.get_ident())
        if len(starts) == 1:  # the constraint is deferred to the commit
            Permission.objects.create(codename="x", name="x", content_type_id=10**6)

    def failed_slowly(*arguments, **options):
        """Give the other thread the time to look, before it is known that the first has failed."""
        refused.set()
        eventually(lambda: set(lookers) - set(starts[:1]))
        return failed(*arguments, **options)

    def claim_noted(*arguments):
        answer = claim(*arguments)
        if refused.is_set():
            lookers.append(threading.get_ident())
        return answer

    monkeypatch.setattr(execution, "failed", failed_slowly)
    monkeypatch.setattr(Transactions, "_claim", claim_noted)
    enqueued = write.enqueue()
    run()
    enqueued.refresh_from_db()
    assert (enqueued.status, enqueued.attempts, enqueued.claims) == ("pending", 1, 1)
    assert "IntegrityError" in enqueued.last_error


def test_without_autocommit_it_commits_all_the_same(monkeypatch):
    @job(queue="ledger")
    def write():
        Group.objects.create(name="a")

    write.enqueue()
    monkeypatch.setitem(connection.settings_dict, "AUTOCOMMIT", value=False)
    with in_thread(run):
        pass
    monkeypatch.undo()
    assert Job.objects.done().count() == 1
    assert groups() == {"a"}


def test_a_thread_keeps_its_connection():
    @job(queue="ledger")
    def tell():
        return connection.connection.info.backend_pid

    told = [tell.enqueue() for _ in range(3)]
    run("--threads", "1")
    assert len(set(Job.objects.done().values_list("result", flat=True))) == 1
    assert Job.objects.done().count() == len(told)


def test_slow_jobs_are_warned_of_once_for_each_kind(caplog, monkeypatch):
    monkeypatch.setattr(transactions, "SLOW", 0.0)
    look = declare_look()
    for _ in range(3):
        look.enqueue()
    run()
    [warning] = [r for r in caplog.records if "kept its transaction open" in r.getMessage()]
    assert "the kind 'glance'" in warning.getMessage()
    assert "Claim the queue of slow jobs by lease." in warning.getMessage()


def test_max_jobs_counts_the_jobs_of_both_kinds():
    look = declare_look()
    look.enqueue_many([{}] * 10)
    run("--claim", "transaction", "--max-jobs", "4")
    assert Job.objects.done().count() == 4


def test_a_loss_finds_a_slot_however_many_jobs_are_held_by_lease(monkeypatch):
    slots = 4  # one of the thread, one for what it loses, two for claims by lease
    monkeypatch.setattr(WorkerOptions, "most_held", slots)
    gate, lost = threading.Event(), []

    @job
    async def stay():
        await asyncio.to_thread(gate.wait)

    @job(queue="ledger")
    def lose():
        lost.append("started")
        if len(lost) == 1:
            break_off()

    stay.enqueue_many([{}] * slots)
    with in_thread(lambda: run("--threads", "1")):
        try:
            eventually(Job.objects.running().exists)
            enqueued = lose.enqueue()
            eventually(Job.objects.filter(pk=enqueued.pk, attempts=1).exists)
            eventually(lambda: Job.objects.running().count() == slots - 2)
        finally:
            gate.set()
    assert Job.objects.done().count() == slots


def test_drain_runs_them_in_one_transaction_too():
    @job(queue="ledger")
    def write():
        Group.objects.create(name="a")
        raise ValueError("no")

    enqueued = write.enqueue()
    assert drain() == 1
    enqueued.refresh_from_db()
    assert (enqueued.status, enqueued.attempts) == ("pending", 1)
    assert groups() == set()
