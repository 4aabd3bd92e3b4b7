"""Async handlers run side by side on one loop, use the ORM, and end as sync ones do."""

from __future__ import annotations

import signal

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection

from django_pgjobs.models import Job
from tests.app.async_probes import ahold, aleave, alitter, alook, astain, awrite, greet, nap
from tests.app.probes import hold, record
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("audited")


def ended(*jobs):
    ids = [job.pk for job in jobs]
    eventually(lambda: Job.objects.filter(pk__in=ids, finished_at=None).count() == 0)
    return [Job.objects.get(pk=pk) for pk in ids]


def sessions():
    with connection.cursor() as cursor:
        cursor.execute(
            "select pid, state from pg_stat_activity where datname = current_database() and application_name = 'pgjobs-test-process'"
        )
        return dict(cursor.fetchall())


def test_a_hundred_that_wait_a_second_take_about_a_second(processes):
    worker = processes.worker("--threads", "1")
    nap.enqueue_many({"key": str(n), "seconds": 1} for n in range(100))
    eventually(lambda: len(processes.ledger.ends()) == 100)
    first = min(entry.at for entry in processes.ledger.starts())
    last = max(entry.at for entry in processes.ledger.ends())
    assert last - first < 2.5
    assert worker.stop() == 0
    assert Job.objects.done().count() == 100


def test_no_more_run_at_a_time_than_was_said(processes):
    processes.worker("--async-concurrency", "3")
    nap.enqueue_many({"key": str(n), "seconds": 0.1} for n in range(12))
    eventually(lambda: Job.objects.done().count() == 12)
    running = most = 0
    for entry in processes.ledger.entries():
        running += 1 if entry.event == "start" else -1
        most = max(most, running)
    assert most == 3


def test_async_jobs_run_while_every_thread_is_busy(processes):
    processes.worker("--threads", "2", "--async-concurrency", "10")
    for key in ("a", "b"):
        hold.enqueue(key=key)
    eventually(lambda: len(processes.ledger.starts()) == 2)
    waiting = [record.enqueue(key=f"waits-{n}") for n in range(20)]
    jobs = [nap.enqueue(key=f"runs-{n}") for n in range(30)]
    assert {job.status for job in ended(*jobs)} == {"done"}
    for job in waiting:
        job.refresh_from_db()
        assert (job.status, job.claims) == ("pending", 0), "it would wait here, not for others"
    for key in ("a", "b"):
        processes.open_gate(key)
    ended(*waiting)


def test_sync_jobs_run_while_the_loop_is_full(processes):
    processes.worker("--threads", "2", "--async-concurrency", "2")
    for key in ("a", "b"):
        ahold.enqueue(key=key)
    eventually(lambda: len(processes.ledger.starts()) == 2)
    waiting = [nap.enqueue(key=f"waits-{n}") for n in range(20)]
    jobs = [record.enqueue(key=f"runs-{n}") for n in range(30)]
    assert {job.status for job in ended(*jobs)} == {"done"}
    for job in waiting:
        job.refresh_from_db()
        assert (job.status, job.claims) == ("pending", 0)
    for key in ("a", "b"):
        processes.open_gate(key)
    ended(*waiting)


LIMITED = {"QUEUES": {"limited": {"concurrency": 2}}}


@pytest.mark.parametrize(
    ("busy", "other", "idle"),
    [(hold, "record", "nap"), (ahold, "nap", "record")],
    ids=["threads are busy", "the loop is full"],
)
def test_what_has_limits_waits_only_for_room_of_its_own_sort(processes, busy, other, idle):
    """It is claimed while nothing else is, and what there is no room for is not."""
    options = ("--threads", "2", "--async-concurrency", "2")
    processes.worker(*options, pgjobs=LIMITED, PGJOBS_TEST_LIMITED="1")
    for key in ("a", "b"):
        busy.enqueue(key=key)
    eventually(lambda: len(processes.ledger.starts()) == 2)

    def enqueue(what: str) -> list[Job]:
        kinds = [(f"{what}_at_most_two", f"{what}_at_most_two", "default"), (what, None, "limited")]
        return [
            Job.objects.create(kind=kind, concurrency_key=key, queue=queue, payload={"key": "x"})
            for kind, key, queue in 3 * kinds
        ]

    waiting, jobs = enqueue(other), enqueue(idle)
    assert {job.status for job in ended(*jobs)} == {"done"}
    for job in waiting:
        job.refresh_from_db()
        assert (job.status, job.claims) == ("pending", 0)
    for key in ("a", "b"):
        processes.open_gate(key)
    assert {job.status for job in ended(*waiting)} == {"done"}


@pytest.mark.parametrize("max_age", [0, None])
def test_the_orm_works_and_its_connections_are_few(processes, max_age):
    settings = f'{{"CONN_MAX_AGE": {"null" if max_age is None else max_age}}}'
    worker = processes.worker("--threads", "3", PGJOBS_TEST_CONNECTION=settings)
    jobs = [awrite.enqueue(name=f"g{n}") for n in range(60)]
    found = [job.result for job in ended(*jobs)]
    assert Group.objects.count() == 60
    assert None not in found
    if max_age is None:
        assert 1 < len({result["session"] for result in found}) <= 3
    # The worker's own three (jobs, keeper, listener), and the lanes' where they are kept.
    eventually(lambda: len(sessions()) <= 3 + (3 if max_age is None else 0))
    assert "idle in transaction" not in sessions().values()
    assert worker.stop() == 0


def test_a_model_instance_is_loaded_where_the_job_runs(processes):
    processes.worker()
    [job] = ended(greet.enqueue(User.objects.create(username="u")))
    assert job.result == "u"


def test_a_connection_that_the_server_ended_is_replaced(processes):
    processes.worker("--threads", "1", PGJOBS_TEST_CONNECTION='{"CONN_MAX_AGE": null}')
    [first] = ended(awrite.enqueue(name="first"))
    with connection.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(%s)", [first.result["session"]])
    [second] = ended(awrite.enqueue(name="second"))
    assert second.status == "done"
    assert second.errors == []
    assert second.result["session"] != first.result["session"]


def test_each_has_a_context_of_its_own(processes):
    processes.worker()
    jobs = [astain.enqueue(tag=str(n)) for n in range(20)]
    for n, job in enumerate(ended(*jobs)):
        assert job.result == ["en-us", "America/Chicago", "", str(n), str(n)]


@pytest.mark.parametrize("what", ["atomic", "autocommit"])
def test_a_transaction_that_is_left_open_reaches_no_other_job(processes, what):
    processes.worker("--threads", "1")
    other = ahold.enqueue(key="other")
    eventually(lambda: processes.ledger.starts("other"))
    [bad] = ended(alitter.using(max_attempts=1).enqueue(what=what))
    if what == "atomic":
        assert bad.status == "failed"
        assert "transaction open" in bad.last_error
    [look] = ended(alook.enqueue())
    assert (look.result["atomic"], look.result["autocommit"]) == (False, True)
    assert not Group.objects.exists()
    processes.open_gate("other")
    assert ended(other)[0].status == "done"


def test_a_task_that_is_left_behind_ends_with_its_job(processes):
    processes.worker()
    [job] = ended(alitter.enqueue(what="task", key="x"))
    assert job.status == "done"
    assert processes.ledger.entries("cancelled", "x")


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("exception", "ValueError"),
        ("sys.exit", "SystemExit"),
        ("sys.exit in a task", "SystemExit"),
        ("sys.exit in a thread", "SystemExit"),
        ("cancel", "CancelledError"),
    ],
)
def test_what_a_handler_raises_is_its_job_s_alone(processes, how, reason):
    worker = processes.worker()
    other = ahold.enqueue(key="other")
    eventually(lambda: processes.ledger.starts("other"))
    [bad] = ended(aleave.using(max_attempts=1).enqueue(key="bad", how=how))
    assert bad.status == "failed"
    assert reason in bad.last_error
    processes.open_gate("other")
    [other, after] = ended(other, nap.enqueue(key="after"))
    assert (other.status, after.status) == ("done", "done")
    assert len({entry.pid for entry in processes.ledger.starts()}) == 1
    assert worker.stop() == 0


def test_a_handler_that_cancels_itself_and_returns_is_done(processes):
    processes.worker()
    [job] = ended(aleave.using(max_attempts=1).enqueue(key="x", how="cancel itself"))
    assert job.status == "done"


def test_a_keyboard_interrupt_stops_the_worker_in_good_order(processes):
    worker = processes.worker()
    ahold.enqueue(key="other")
    eventually(lambda: processes.ledger.starts("other"))
    bad = aleave.using(max_attempts=1).enqueue(key="x", how="interrupt")
    ended(bad)
    eventually(lambda: worker.worker.stopping_at)
    processes.open_gate("other")
    assert worker.wait() == 0
    assert Job.objects.done().count() == 1
    assert "KeyboardInterrupt" in Job.objects.get(pk=bad.pk).last_error


def test_at_a_stop_running_ones_may_finish(processes):
    worker = processes.worker("--async-concurrency", "2")
    jobs = [ahold.enqueue(key=str(n)) for n in range(3)]
    eventually(lambda: len(processes.ledger.starts()) == 2)
    worker.signal(signal.SIGTERM)
    eventually(lambda: worker.worker.stopping_at)
    for n in range(3):
        processes.open_gate(n)
    assert worker.wait() == 0
    statuses = [
        job.status for job in Job.objects.filter(pk__in=[j.pk for j in jobs]).order_by("pk")
    ]
    assert statuses == ["done", "done", "pending"]
    assert Job.objects.pending().get().attempts == 0


def test_at_the_end_of_the_shutdown_timeout_they_are_given_up(processes):
    worker = processes.worker("--shutdown-timeout", "0.5")
    ahold.enqueue(key="x")
    eventually(processes.ledger.starts)
    worker.signal(signal.SIGTERM)
    assert worker.wait(within=10) == 1
    job = Job.objects.due().get()
    assert job.attempts == 1
    assert "ShutdownTimeout" in job.last_error


def test_a_drain_runs_both_kinds(processes):
    nap.enqueue_many({"key": f"a{n}"} for n in range(300))
    record.enqueue_many({"key": f"s{n}"} for n in range(300))
    assert processes.worker("--drain").wait() == 0
    assert Job.objects.done().count() == 600
    assert set(Job.objects.values_list("claims", "attempts")) == {(1, 1)}
