"""`@job(atomic=True)`: what the handler writes and the settle are one transaction."""

from __future__ import annotations

import datetime
import logging
import threading
from contextlib import ExitStack

import psycopg
import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection, connections, transaction
from django.test import TestCase

from django_pgjobs import InvalidOption, atomic, execution, job, outcomes, sessions
from django_pgjobs.board import Board
from django_pgjobs.claims import Claimer
from django_pgjobs.leases import Lease
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Failed, Settled
from django_pgjobs.testing import drain
from tests.db.rows import execute, row
from tests.db.sessions import in_thread
from tests.hold_ups import held_up_at
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("kinds")


def groups() -> set[str]:
    return set(Group.objects.values_list("name", flat=True))


@pytest.fixture
def attempt(transactional_db):
    """Claim the only due job, by a worker of its own, and run it as a worker's thread does."""
    lease = Lease.register(execute, Board.create(1), pid=1, queues=None, threads=1)

    def run(before=None):
        [claim] = Claimer("default", lease.worker).claim(execute, 1)
        if before:
            before(claim)
        return execution.run_in_thread(
            claim,
            lease.name,
            execution.NEVER,
            lambda claim, _, deadline: atomic.run(claim, lease, "default", lambda: deadline),
        )

    return run


def test_async_handlers_are_refused_where_they_are_declared():
    with pytest.raises(InvalidOption, match="atomic=True needs a sync handler"):

        @job(atomic=True)
        async def later(): ...


def test_atomic_must_be_a_bool():
    with pytest.raises(InvalidOption, match="atomic must be True or False, got 'yes'"):
        job(atomic="yes")(lambda: None)


def test_the_writes_and_done_are_one_transaction(attempt):
    seen = []

    @job(atomic=True)
    def write(name):
        Group.objects.create(name=name)
        with in_thread(lambda: (groups(), Job.objects.get().status)) as result:
            seen.append(result())
        return {"name": name}

    write.enqueue("a")

    assert isinstance(attempt(), Settled)
    assert seen == [(set(), "running")]
    assert groups() == {"a"}
    done = Job.objects.get()
    assert (done.status, done.result, done.attempts) == ("done", {"name": "a"}, 1)


def test_an_error_takes_the_writes_back_and_is_left_for_the_pump(attempt):
    @job(atomic=True)
    def write():
        Group.objects.create(name="a")
        raise ValueError("no")

    write.enqueue()

    outcome = attempt()
    assert isinstance(outcome, Failed)
    assert outcome.error["error"] == "builtins.ValueError"
    assert groups() == set()
    assert Job.objects.get().status == "running"


def lose(claim):
    Job.objects.filter(pk=claim.id).update(claims=claim.claims + 1)


def test_a_lost_lease_takes_the_writes_back(attempt):
    @job(atomic=True)
    def write():
        Group.objects.create(name="a")

    write.enqueue()

    outcome = attempt(before=lose)
    assert isinstance(outcome, Failed)
    assert "did not belong to its worker any more" in outcome.error["message"]
    assert groups() == set()
    assert Job.objects.get().status == "running"


def fail_unnoticed():
    try:
        with connection.cursor() as cursor:
            cursor.execute("select 1/0")
    except DatabaseError:
        pass


def lose_the_connection():
    connection.connection.close()


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (fail_unnoticed, "TransactionBroken"),
        (lambda: transaction.set_rollback(True), "TransactionBroken"),
        (connections.close_all, "TransactionBroken"),
        (lambda: transaction.atomic().__enter__(), "TransactionLeftOpen"),
        (lambda: transaction.atomic(using="other").__enter__(), "TransactionLeftOpen"),
        (lose_the_connection, "OperationalError"),
    ],
    ids=["failed query", "set_rollback", "closed", "left open", "other left open", "lost"],
)
@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_transaction_that_the_handler_broke_is_a_failure_and_leaves_nothing(attempt, end, error):
    @job(atomic=True)
    def write():
        Group.objects.create(name="a")
        end()

    write.enqueue()

    outcome = attempt()
    assert isinstance(outcome, Failed)
    assert outcome.error["error"].endswith(f".{error}")
    assert groups() == set()
    assert Job.objects.get().status == "running"


def test_what_fails_in_a_savepoint_of_the_handler_does_no_harm(attempt):
    @job(atomic=True)
    def write():
        Group.objects.create(name="a")
        with pytest.raises(DatabaseError), transaction.atomic():
            Group.objects.create(name="a")

    write.enqueue()

    assert isinstance(attempt(), Settled)
    assert groups() == {"a"}


def test_a_callback_that_fails_after_the_commit_is_logged_and_changes_nothing(attempt, caplog):
    @job(atomic=True)
    def write():
        Group.objects.create(name="a")
        transaction.on_commit(lambda: 1 / 0)

    write.enqueue()

    assert isinstance(attempt(), Settled)
    assert groups() == {"a"}
    assert Job.objects.get().status == "done"
    [record] = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert "is settled, but a function that it gave to on_commit() failed" in record.getMessage()


def test_a_constraint_that_fails_at_the_commit_is_a_failure(attempt):
    with connection.cursor() as cursor:
        cursor.execute("create table lately (n int unique deferrable initially deferred)")

    @job(atomic=True)
    def write():
        Group.objects.create(name="a")
        with connection.cursor() as cursor:
            cursor.execute("insert into lately values (1), (1)")

    write.enqueue()
    try:
        outcome = attempt()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("drop table lately")
    assert isinstance(outcome, Failed)
    assert outcome.error["error"].endswith("IntegrityError")
    assert groups() == set()
    assert Job.objects.get().status == "running"


def test_a_commit_whose_answer_is_lost_is_done_and_its_failure_dropped(attempt, caplog):
    opened = []

    @job(atomic=True)
    def write():
        Group.objects.create(name="a")
        opened.append(connections["default"])

    write.enqueue()
    with held_up_at("commit") as wait, in_thread(attempt) as result:
        wait()
        sessions._shut(opened[0])
        outcome = result()
        assert isinstance(outcome, Failed)
        assert (groups(), Job.objects.get().status) == (set(), "running")
    eventually(Job.objects.done().exists)
    assert groups() == {"a"}
    before = Job.objects.values().get()
    outcomes.settle(execute, before["locked_by"] or 0, [outcome])
    assert Job.objects.values().get() == before
    assert before["attempts"] == 1


def test_a_result_that_cannot_be_stored_does_not_undo_the_job(attempt):
    @job(atomic=True)
    def write():
        Group.objects.create(name="a")
        return object()

    write.enqueue()

    assert isinstance(attempt(), Settled)
    done = Job.objects.get()
    assert (done.status, done.result["$type"]) == ("done", "unserializable")
    assert groups() == {"a"}


def session_parameters():
    parameters = connection.get_connection_params()
    return {
        name: parameters[name]
        for name in ("dbname", "host", "port", "user", "password")
        if name in parameters
    }


def somebody_waits(session):
    return session.execute("select from pg_locks where not granted").fetchone() is not None


def test_a_row_that_somebody_has_locked_is_waited_for(attempt):
    held = threading.Event()

    def hold():
        with transaction.atomic(), psycopg.connect(**session_parameters()) as watching:
            Job.objects.select_for_update().get()
            held.set()
            watching.autocommit = True
            eventually(lambda: somebody_waits(watching))

    @job(atomic=True)
    def write():
        Group.objects.create(name="a")
        enter_context(in_thread(hold))
        held.wait(10)

    write.enqueue()
    with ExitStack() as stack:
        enter_context = stack.enter_context
        assert isinstance(attempt(), Settled)
    assert groups() == {"a"}
    assert Job.objects.get().status == "done"


def test_without_autocommit_it_commits_all_the_same(attempt, monkeypatch):
    @job(atomic=True)
    def write():
        Group.objects.create(name="a")

    write.enqueue()
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "AUTOCOMMIT", value=False)
        connection.close()
        outcome = attempt(before=lambda _: transaction.commit())
        connection.close()
    assert isinstance(outcome, Settled)
    assert groups() == {"a"}
    assert Job.objects.get().status == "done"


class DrainInATestCase(TestCase):
    def test_drain_runs_atomic_jobs_in_the_transaction_of_the_test(self):
        called = []

        @job(atomic=True)
        def write(name, then=""):
            Group.objects.create(name=name)
            transaction.on_commit(lambda: called.append(name))
            match then:
                case "raise":
                    raise ValueError(name)
                case "break":
                    fail_unnoticed()

        jobs = [write.enqueue("a"), write.enqueue("b", "raise"), write.enqueue("c", "break")]
        assert drain() == 3
        assert groups() == {"a"}
        assert called == ["a"]
        assert [row(job)["status"] for job in jobs] == ["done", "pending", "pending"]
        assert "TransactionBroken" in row(jobs[2])["last_error"]
        assert min(row(job)["run_at"] for job in jobs[1:]) > datetime.datetime.now(datetime.UTC)


@pytest.mark.django_db(transaction=True)
def test_drain_outside_of_a_transaction_commits_both():
    @job(atomic=True)
    def write():
        assert len(connection.atomic_blocks) == 1
        Group.objects.create(name="a")

    write.enqueue()
    assert drain() == 1
    with in_thread(lambda: (groups(), Job.objects.get().status)) as result:
        assert result() == ({"a"}, "done")
