"""Consumers: what becomes of a message between its read and its end."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from contextlib import ExitStack, contextmanager

import pytest
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, transaction

from django_pgjobs import job, leftovers
from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.models import Job
from django_pgjobs.pgmq import DeadLetters, Queue, consumer, consumers
from django_pgjobs.pgmq.acks import Acks
from django_pgjobs.pgmq.crew import Crew
from django_pgjobs.pgmq.dead_letters import ERROR
from django_pgjobs.sessions import Session, execute_on_django
from django_pgjobs.worker_options import WorkerOptions
from tests.app.jobs import noop
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def table(monkeypatch):
    """The table of consumers, empty, and forgotten at the end of the test."""
    monkeypatch.setattr(consumers, "_consumers", {})


def drain(*arguments):
    call_command("runjobs", "--drain", *arguments, verbosity=0)


@contextmanager
def at_work(**options):
    """Work as a process does until the block ends."""
    chosen = WorkerOptions(database="default", **{"poll": 0.05, "notify": False, **options})
    crew = Crew(list(consumers.consumers().values()), chosen)
    crew.start(lambda: None)
    try:
        yield crew
    finally:
        crew.close()


class Gate:
    """A handler that waits, and says where it is."""

    def __init__(self):
        self.begun, self.opened = threading.Semaphore(0), threading.Semaphore(0)

    def pass_by(self, _message):
        self.begun.release()
        assert self.opened.acquire(timeout=60)

    def wait(self, times=1):
        for _ in range(times):
            assert self.begun.acquire(timeout=60)

    def open(self, times=1):
        self.opened.release(times)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open(100)


def column(name, table="q_emails"):
    with connection.cursor() as cursor:
        cursor.execute(f"select {name} from pgmq.{table} order by msg_id")  # noqa: S608
        return [value for (value,) in cursor.fetchall()]


def stored_json(table):
    return [json.loads(text) for text in column("message::text", table)]


def counts():
    return tuple(len(column("1", table)) for table in ("q_emails", "a_emails", "q_emails_dead"))


# ------------------------------------------------------------------------------ handled, failed, given up


def test_the_handler_is_given_the_json_of_each_message_and_the_message_is_archived(committed):
    seen = []
    consumer("emails")(seen.append)
    committed.send_batch([{"to": "ada"}, [1], None])

    drain()

    assert sorted(map(str, seen)) == sorted(map(str, [{"to": "ada"}, [1], None]))
    assert counts() == (0, 3, 0)


def test_a_message_can_be_deleted_instead(committed):
    consumer("emails", delete=True)(print)
    committed.send(1)

    drain()

    assert counts() == (0, 0, 0)


def test_async_handlers_run_side_by_side_and_use_the_orm(committed):
    both = asyncio.Event(), asyncio.Event()

    @consumer("emails")
    async def meet(n):
        both[n].set()
        await both[1 - n].wait()
        await Group.objects.acreate(name=f"group {n}")

    committed.send_batch([0, 1])

    drain()

    assert Group.objects.count() == 2
    assert counts() == (0, 2, 0)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_a_plain_consumer_is_given_json_as_it_is(committed, is_async, plain):
    group, seen = Group.objects.create(name="staff"), []

    async def aseen(message):
        seen.append(message)

    consumer("emails", plain=plain)(aseen if is_async else seen.append)
    committed.send(group)

    drain()

    assert seen == (stored_json("a_emails") if plain else [group])


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failure_is_written_into_the_headers_and_the_message_stays(committed, caplog, is_async):
    def fail(_):
        raise ValueError("no such address")

    async def afail(_):
        fail(_)

    consumer("emails")(afail if is_async else fail)
    committed.send({"to": "ada"}, headers={"trace": "t1"})

    drain()

    [headers] = [message.headers for message in committed.set_vt(column("msg_id"), 0)]
    assert headers["trace"] == "t1"
    assert headers[ERROR] == {
        "error": "builtins.ValueError",
        "message": "no such address",
        "read_ct": 1,
    }
    assert column("read_ct") == [1]
    assert "The handler of message" in caplog.text
    assert "no such address" in caplog.text


def test_a_message_whose_last_read_fails_goes_to_the_dead_letters_with_the_reason(committed):
    @consumer("emails", max_reads=2, dead_letter="emails_dead")
    def fail(_):
        raise ValueError("no such address")

    committed.send({"to": "ada"})
    drain()
    assert counts() == (1, 0, 0)
    committed.set_vt(column("msg_id"), 0)
    drain()

    assert counts() == (0, 0, 1)
    [letter] = DeadLetters("emails_dead").peek()
    assert (letter.message, letter.queue, letter.read_ct) == ({"to": "ada"}, "emails", 2)
    assert letter.reason == "ValueError: no such address"


def test_a_message_is_in_its_queue_until_it_is_among_the_dead_letters(committed):
    @consumer("emails", max_reads=1, dead_letter="emails_dead")
    def fail(_):
        raise ValueError

    def a_consumer_waits():
        with connection.cursor() as cursor:
            cursor.execute(
                "select pg_stat_clear_snapshot()"
            )  # a transaction sees what it saw first
            cursor.execute(
                "select 1 from pg_stat_activity "
                "where datname = current_database() and wait_event_type = 'Lock'"
            )
            return cursor.fetchone()

    committed.send(1)
    with ExitStack() as working:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("lock table pgmq.q_emails_dead in share mode")
            working.enter_context(at_work())
            eventually(a_consumer_waits)
            assert counts() == (1, 0, 0)
        eventually(lambda: counts() == (0, 0, 1))


def test_without_dead_letters_it_goes_to_the_archive_with_its_error(committed):
    @consumer("emails", max_reads=1, delete=True)
    def fail(_):
        raise ValueError("no such address")

    committed.send(1)
    drain()

    assert counts() == (0, 1, 0)
    assert "no such address" in column("headers", "a_emails")[0]


def test_a_message_that_was_read_too_often_is_not_handled_any_more(committed):
    seen = []
    consumer("emails", max_reads=3, dead_letter="emails_dead")(seen.append)
    committed.send("killed its worker")
    for _ in range(3):
        committed.read(vt=0)
    committed.send("fine")

    drain()

    assert seen == ["fine"]
    [letter] = DeadLetters("emails_dead").peek()
    assert letter.reason == "It was read 3 times, and no handler came to its end."


@pytest.mark.parametrize(
    ("silent", "reason"),
    [
        (0, "ValueError: no such address"),
        (
            1,
            "It was read 2 times; the last ended without a word (before that: ValueError: no such address).",
        ),
        (
            2,
            "It was read 3 times; the last 2 ended without a word (before that: ValueError: no such address).",
        ),
    ],
)
def test_the_reason_is_what_came_after_the_last_error(committed, silent, reason):
    def fail(_):
        raise ValueError("no such address")

    consumer("emails")(fail)
    committed.send(1)
    drain()
    committed.set_vt(column("msg_id"), 0)
    for _ in range(silent):  # as a process does that is killed
        committed.read(vt=0)

    consumer("emails", max_reads=1, dead_letter="emails_dead")(fail)
    drain()

    [letter] = DeadLetters("emails_dead").peek()
    assert letter.reason == reason


def test_what_is_redriven_begins_afresh(committed):
    @consumer("emails", max_reads=1, dead_letter="emails_dead")
    def fail(_):
        raise ValueError("no such address")

    committed.send(1, headers={"trace": "t1"})
    drain()
    DeadLetters("emails_dead").redrive()
    [message] = committed.read(vt=0)  # and the process is killed
    drain()

    assert message.headers == {"trace": "t1"}
    [letter] = DeadLetters("emails_dead").peek()
    assert letter.reason == "It was read 1 time, and no handler came to its end."


@pytest.mark.parametrize("read_ct", [7, -1, 0, "1", True, None])
def test_an_error_of_no_read_of_this_message_is_no_reason(committed, read_ct):
    consumer("emails", max_reads=3, dead_letter="emails_dead")(print)
    error = {"error": "builtins.ValueError", "message": "of another one", "read_ct": read_ct}
    committed.send(1, headers={ERROR: error})
    for _ in range(3):
        committed.read(vt=0)

    drain()

    [letter] = DeadLetters("emails_dead").peek()
    assert letter.reason == "It was read 3 times, and no handler came to its end."


class Unspeakable(Exception):
    def __str__(self):
        raise SystemExit(2)


@pytest.mark.parametrize("time", ["infinity", "0044-03-15 BC"])
def test_a_time_that_python_cannot_have_stops_no_consumer(committed, time):
    consumer("emails", max_reads=1)(print)
    committed.send_batch(range(4))
    with connection.cursor() as cursor:
        cursor.execute("update pgmq.q_emails set enqueued_at = %s where msg_id = 1", [time])

    drain()

    assert counts() == (0, 4, 0)
    assert set(column("read_ct", "a_emails")) == {1}


def test_an_error_that_cannot_be_shown_holds_nobody_up(committed):
    @consumer("emails", qty=1)
    def fail(message):
        if message == "bad":
            raise Unspeakable

    committed.send_batch(["bad", "good"])
    drain()

    assert counts() == (1, 1, 0)


def test_without_the_queue_of_the_dead_letters_a_message_stays_and_it_is_told(committed, caplog):
    @consumer("emails", qty=1, max_reads=1, dead_letter="nowhere")
    def fail(message):
        if message == "bad":
            raise ValueError

    committed.send_batch(["bad", "good"])
    with at_work():
        eventually(lambda: counts() == (1, 1, 0))
        eventually(lambda: "cannot go into the queue 'nowhere'" in caplog.text)
        committed.set_vt(column("msg_id"), 0)
        eventually(lambda: caplog.text.count("cannot go into the queue 'nowhere'") == 2)

    assert counts() == (1, 1, 0)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_whatever_a_handler_raises_is_its_message_s(committed, error):
    @consumer("emails", qty=1)
    def fail(message):
        if message == "bad":
            raise error

    committed.send_batch(["bad", "good"])
    drain()

    assert counts() == (1, 1, 0)


# ------------------------------------------------------------------------------ transactions


def test_an_atomic_handler_commits_with_the_archive(committed):
    @consumer("emails", atomic=True)
    def write(name):
        Group.objects.create(name=name)
        assert connection.in_atomic_block

    committed.send("kept")
    drain()

    assert Group.objects.count() == 1
    assert counts() == (0, 1, 0)


def test_what_an_atomic_handler_wrote_before_it_failed_is_rolled_back(committed):
    @consumer("emails", atomic=True)
    def write(name):
        Group.objects.create(name=name)
        raise ValueError

    committed.send("lost")
    drain()

    assert Group.objects.count() == 0
    assert counts() == (1, 0, 0)


def test_an_atomic_handler_that_sets_a_rollback_has_failed(committed):
    @consumer("emails", atomic=True)
    def write(name):
        Group.objects.create(name=name)
        transaction.set_rollback(True)

    committed.send("lost")
    drain()

    assert Group.objects.count() == 0
    assert counts() == (1, 0, 0)
    assert "TransactionManagementError" in column("headers")[0]


def test_what_fails_after_the_commit_of_an_atomic_handler_undoes_nothing(committed, caplog):
    @consumer("emails", atomic=True)
    def write(name):
        Group.objects.create(name=name)
        transaction.on_commit(lambda: 1 / 0)

    committed.send("kept")
    drain()

    assert Group.objects.count() == 1
    assert counts() == (0, 1, 0)
    assert "gave to on_commit() failed" in caplog.text


def test_a_connection_that_is_lost_in_a_handler_is_its_failure_and_no_thread_ends(committed):
    @consumer("emails", qty=1)
    def cut(message):
        if message == "cut":
            with connection.cursor() as cursor:
                cursor.execute("select pg_terminate_backend(pg_backend_pid())")

    committed.send_batch(["cut", "fine", "fine"])
    drain("--threads", "1")

    assert counts() == (1, 2, 0)


def test_cleaning_up_that_fails_is_a_failure_and_no_thread_ends(committed, monkeypatch):
    seen, remove = [], leftovers.remove

    def fail_once():
        if len(seen) == 1:
            raise OperationalError("the connection is gone")
        return remove()

    monkeypatch.setattr(leftovers, "remove", fail_once)
    consumer("emails", qty=1)(seen.append)
    committed.send_batch([1, 2])

    drain("--threads", "1")

    assert seen == [1, 2]
    assert counts() == (1, 1, 0)


def test_an_atomic_handler_that_was_overtaken_keeps_nothing_and_says_so(committed, caplog):
    @consumer("emails", atomic=True)
    def overtaken(name):
        Group.objects.create(name=name)
        read_elsewhere()

    committed.send("twice")
    drain()

    assert Group.objects.count() == 0
    assert counts() == (1, 0, 0)
    assert column("read_ct") == [2]
    assert "was read by somebody else, or removed, before its transaction" in caplog.text


def read_elsewhere(which="true"):
    """Another worker reads the message, as if its time were over."""
    session = Session("default")
    session.execute(f"update pgmq.q_emails set vt = clock_timestamp() where {which}", {})  # noqa: S608
    assert session.execute("select * from pgmq.read('emails', 600, 10)", {})
    session.close()


def test_a_transaction_that_a_handler_leaves_open_is_a_failure(committed):
    @consumer("emails")
    def leave(_):
        transaction.set_autocommit(False)
        Group.objects.create(name="left")

    committed.send(1)
    drain()

    assert Group.objects.count() == 0
    assert counts() == (1, 0, 0)
    assert "TransactionLeftOpen" in column("headers")[0]


# ------------------------------------------------------------------------------ visibility


def test_an_acknowledgement_that_comes_too_late_is_told_and_changes_nothing(committed, caplog):
    @consumer("emails")
    def overtaken(_):
        read_elsewhere()

    committed.send(1)
    drain()

    assert counts() == (1, 0, 0)
    assert column("read_ct") == [2]
    assert "was read by somebody else, or removed, before it was handled" in caplog.text


def test_of_many_that_are_acknowledged_together_the_late_one_alone_stays(committed, caplog):
    @consumer("emails")
    def overtaken(n):
        if n == 2:
            read_elsewhere("message = '2'")

    committed.send_batch(range(5))
    drain("--threads", "1")

    assert counts() == (1, 4, 0)
    assert column("message") == ["2"]
    assert column("read_ct") == [2]
    assert caplog.text.count("was read by somebody else, or removed, before it was handled") == 1


def test_a_failure_that_comes_too_late_does_not_touch_the_message(committed, caplog):
    @consumer("emails", max_reads=1, dead_letter="emails_dead")
    def overtaken(_):
        read_elsewhere()
        raise ValueError

    committed.send(1)
    drain()

    assert counts() == (1, 0, 0)
    assert column("headers") == [None]
    assert "before its error was recorded" in caplog.text


def test_a_message_is_hidden_for_as_long_as_its_handler_lives(committed, gate):
    consumer("emails", vt=1)(gate.pass_by)
    committed.send(1)

    with at_work():
        gate.wait()
        [first] = column("vt")
        later = eventually(lambda: [vt for vt in column("vt") if (vt - first).total_seconds() > 2])
        assert later
        assert column("read_ct") == [1]
        assert committed.read() == []
        gate.open()
        eventually(lambda: counts() == (0, 1, 0))


@contextmanager
def locked(message_id):
    """Have somebody else hold a lock on a message, as an archive() in a longer transaction does."""
    other = Session("default")
    other.execute("begin", {})
    other.execute(f"select from pgmq.q_emails where msg_id = {message_id} for update", {})
    try:
        yield
    finally:
        other.execute("rollback", {})
        other.close()


def test_a_message_that_somebody_has_locked_holds_up_no_other(committed, gate, caplog):
    handled = []

    @consumer("emails", vt=1)
    def handle(n):
        handled.append(n)
        gate.pass_by(n)

    first, *others = committed.send_batch(range(4))
    with at_work(threads=4):
        gate.wait(4)
        with locked(first):
            before = column("vt")[1:]
            assert eventually(
                lambda: all(now > vt for now, vt in zip(column("vt")[1:], before, strict=True))
            ), "the others are prolonged"
            gate.open(4)
            assert eventually(lambda: column("msg_id", "a_emails") == others)
            committed.send("later")
            gate.wait()
            gate.open()
            assert eventually(lambda: len(column("1", "a_emails")) == 4)
        assert eventually(lambda: counts() == (0, 5, 0)), "acknowledged when the lock is gone"
    assert sorted(map(str, handled)) == ["0", "1", "2", "3", "later"]
    assert "read by somebody else" not in caplog.text


def test_a_failure_of_a_message_that_somebody_has_locked_is_recorded_later(committed, gate, caplog):
    @consumer("emails", max_reads=1, dead_letter="emails_dead")
    def fail(n):
        gate.pass_by(n)
        raise ValueError("no such address")

    first, _ = committed.send_batch(range(2))
    with at_work(threads=2):
        gate.wait(2)
        with locked(first):
            gate.open(2)
            assert eventually(lambda: counts() == (1, 0, 1))
        assert eventually(lambda: counts() == (0, 0, 2))
    reasons = {letter.reason for letter in DeadLetters("emails_dead").peek()}
    assert reasons == {"ValueError: no such address"}
    assert caplog.text.count("The handler of message") == 2


def test_an_atomic_handler_that_has_committed_is_no_thief_of_its_own_message(
    committed, monkeypatch, caplog
):
    prolonged, remove, prolong = threading.Semaphore(0), leftovers.remove, Acks.prolong

    def remove_late():
        for _ in range(2):
            assert prolonged.acquire(timeout=60)
        return remove()

    def prolong_and_say(self, held):
        mine = prolong(self, held)
        prolonged.release()
        return mine

    monkeypatch.setattr(leftovers, "remove", remove_late)
    monkeypatch.setattr(Acks, "prolong", prolong_and_say)
    consumer("emails", vt=1, atomic=True)(print)
    committed.send(1)
    drain()

    assert counts() == (0, 1, 0)
    assert "read by somebody else" not in caplog.text


@pytest.mark.parametrize(("qty", "threads"), [(20, 2), (2, 20)])
def test_a_process_holds_no_more_messages_than_it_has_room_for(committed, gate, qty, threads):
    consumer("emails", qty=qty)(gate.pass_by)
    committed.send_batch(range(5))

    with at_work(threads=threads):
        gate.wait(2)
        assert sorted(column("read_ct")) == [0, 0, 0, 1, 1]
        gate.open(5)
        eventually(lambda: counts() == (0, 5, 0))


def test_what_was_read_ahead_is_given_back_when_the_handlers_become_slow(committed, gate):
    @consumer("emails", qty=20)
    def handle(message):
        if message == "slow":
            gate.pass_by(message)

    committed.send_batch(["fast"] * 200)
    with at_work(threads=1) as crew:
        eventually(lambda: counts() == (0, 200, 0))
        [pump] = crew._pumps
        assert 1 < pump._depth <= 20
        committed.send_batch(["slow"] * 3)
        gate.wait()
        eventually(lambda: column("read_ct") == [1, 0, 0])
        assert pump._depth == 1
        gate.open(3)
        eventually(lambda: counts() == (0, 203, 0))


def test_a_slow_message_among_short_ones_holds_up_none(committed, gate):
    @consumer("emails", qty=20, vt=3600)
    def handle(message):
        if message == "slow":
            gate.pass_by(message)

    committed.send_batch(["fast"] * 200)
    with at_work(threads=2) as crew:
        eventually(lambda: counts() == (0, 200, 0))
        [pump] = crew._pumps
        pump._poll = 600.0  # what was read ahead is not given back meanwhile
        committed.send_batch(["slow", *["fast"] * 5])
        gate.wait()
        eventually(lambda: counts() == (1, 205, 0))
        gate.open()
        pump.look()
        eventually(lambda: counts() == (0, 206, 0))


def test_a_stop_waits_for_what_runs_and_reads_no_more(committed, gate):
    consumer("emails", qty=1)(gate.pass_by)
    committed.send_batch([1, 2])

    with at_work() as crew:
        gate.wait()
        crew.stop()
        assert crew.busy
        gate.open()
        eventually(lambda: not crew.busy)

    assert counts() == (1, 1, 0)
    assert column("read_ct") == [0]


def test_a_stop_that_comes_before_the_start_is_obeyed(committed):
    consumer("emails")(print)
    committed.send(1)
    crew = Crew(list(consumers.consumers().values()), WorkerOptions(database="default"))

    crew.stop()
    crew.start(lambda: None)

    eventually(lambda: not crew.busy)
    assert counts() == (1, 0, 0)


def test_what_no_handler_has_begun_is_given_back_at_once_and_counts_for_nothing(committed, gate):
    consumer("emails")(gate.pass_by)
    committed.send_batch([1, 2])

    with at_work(threads=2) as crew:
        [pump] = crew._pumps
        gate.wait(2)
        # As if the messages had been read in the moment of the stop: no thread is free for them.
        committed.send_batch([3, 4])
        late = Acks(pump._consumer, execute_on_django("default")).read(5)
        pump._hands.put(late, 1.0)
        pump._held.update(late)
        crew.stop()
        eventually(lambda: column("read_ct") == [1, 1, 0, 0])
        assert [message.message for message in committed.read(qty=5)] == [3, 4]
        gate.open(2)
        eventually(lambda: not crew.busy)


def test_a_lost_connection_costs_no_message(committed, gate, caplog):
    consumer("emails", vt=60)(gate.pass_by)
    committed.send_batch([1, 2])

    with at_work():
        gate.wait(2)
        with connection.cursor() as cursor:
            cursor.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where pid <> pg_backend_pid() and query like '%%pgmq.read(%%' and datname = current_database()"
            )
        gate.open(2)
        eventually(lambda: counts() == (0, 2, 0))
        committed.send(3)
        gate.open()
        eventually(lambda: counts() == (0, 3, 0))

    assert column("read_ct", "a_emails") == [1, 1, 1]


CREATE_IT = (
    r"The queue 'later' must exist in pgmq, got none .* Create it: Queue\('later'\)\.create\(\)"
)


@pytest.mark.parametrize(
    "options", [{"queue": "later"}, {"queue": "emails", "dead_letter": "later"}]
)
@pytest.mark.parametrize("arguments", [("--drain",), ("--drain", "--pgmq", "later"), ()])
def test_a_queue_that_is_missing_is_told_at_the_start(committed, kinds, options, arguments):
    if "--pgmq" in arguments:
        arguments = ("--drain", "--pgmq", options["queue"])
    consumer(**options)(print)
    noop.enqueue()
    committed.send(1)

    with pytest.raises(CommandError, match=CREATE_IT) as error:
        call_command("runjobs", *arguments, verbosity=0)

    assert error.value.returncode == 1
    assert Job.objects.pending().count() == 1
    assert counts() == (1, 0, 0)


def test_without_pgmq_it_is_told_at_the_start(transactional_db):
    consumer("emails")(print)
    with connection.cursor() as cursor:
        cursor.execute("alter schema pgmq rename to elsewhere")

    try:
        with pytest.raises(CommandError, match="pgmq must be installed on the database") as error:
            drain()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("alter schema elsewhere rename to pgmq")

    assert error.value.returncode == 1


def test_a_queue_that_is_dropped_meanwhile_is_told_once_and_waited_for(committed, caplog):
    seen, others = [], []
    consumer("later")(seen.append)
    consumer("emails")(others.append)
    Queue("later").create()

    with at_work():
        Queue("later").send(1)
        eventually(lambda: seen == [1])
        Queue("later").drop()
        eventually(lambda: "The queue 'later' must exist" in caplog.text)
        committed.send(2)
        eventually(lambda: others == [2])
        Queue("later").create()
        Queue("later").send(3)
        eventually(lambda: seen == [1, 3])
        eventually(lambda: "The queue 'later' can be used again" in caplog.text)
    Queue("later").drop()

    assert caplog.text.count("The queue 'later' must exist") == 1
    assert "refuses a statement" not in caplog.text


def test_messages_of_a_queue_that_is_dropped_hold_no_drain_up(committed, caplog, kinds):
    Queue("later").create()

    @consumer("later", qty=2)
    def drop(_):
        with (
            connection.cursor() as cursor
        ):  # faster than Queue.drop(), which asks for a lock of its own
            cursor.execute("select pgmq.drop_queue('later')")
        noop.enqueue()

    consumer("emails")(print)
    Queue("later").send_batch([1, 2, 3])
    committed.send(1)

    with pytest.raises(SystemExit) as ended:
        drain("--threads", "1")

    assert ended.value.code == 1
    assert Job.objects.done().count() == 1
    assert counts() == (0, 1, 0)
    assert caplog.text.count("The queue 'later' must exist") == 1


def test_a_trigger_that_misses_a_table_is_no_queue_that_is_missing(committed, caplog):
    """Its messages are kept, and acknowledged when the trigger has what it needs."""
    consumer("emails")(print)
    with connection.cursor() as cursor:
        cursor.execute(
            "create function audit() returns trigger language plpgsql as "
            "$$ begin insert into audits values (1); return new; end $$;"
            "create trigger audits after insert on pgmq.a_emails for each row execute function audit()"
        )
    try:
        with at_work():
            committed.send(1)
            eventually(lambda: 'relation "audits" does not exist' in caplog.text)
            with connection.cursor() as cursor:
                cursor.execute("create table audits (n integer)")
            eventually(lambda: counts() == (0, 1, 0))
        assert column("read_ct", "a_emails") == [1]
        assert "must exist in pgmq" not in caplog.text
    finally:
        with connection.cursor() as cursor:
            cursor.execute("drop function audit() cascade; drop table if exists audits")


def test_a_notification_wakes_a_consumer_that_polls_seldom(committed, caplog):
    caplog.set_level(logging.INFO)
    consumer("emails", vt=86_400)(print)  # it looks as often as it prolongs
    committed.enable_notify(throttle=0)

    with at_work(poll=3600, notify=True):
        eventually(lambda: "Listening for wake-ups" in caplog.text)
        for n in range(1, 4):
            eventually(a_consumer_has_looked)  # and waits now
            committed.send(n)
            eventually(lambda n=n: counts() == (0, n, 0))


def test_two_processes_handle_each_message_once(committed):
    seen = []
    consumer("emails")(seen.append)
    committed.send_batch(range(300))

    with at_work(threads=3), at_work(threads=3):
        eventually(lambda: counts() == (0, 300, 0))

    assert sorted(seen) == list(range(300))


# ------------------------------------------------------------------------------ beside jobs


def test_jobs_and_messages_that_follow_from_each_other_are_drained(committed):
    @consumer("emails")
    def enqueue(n):
        if n:
            noop.enqueue(i=n)

    noop.enqueue(i=0)
    committed.send(1)

    drain()

    assert Job.objects.done().count() == 2
    assert counts() == (0, 1, 0)


def test_a_message_that_the_last_job_sends_is_drained_too(committed, kinds):
    consumer("emails")(print)

    @job
    def send_last():
        eventually(a_consumer_has_looked)
        committed.send("last")

    send_last.enqueue()

    drain("--poll", "600")

    assert counts() == (0, 1, 0)


def a_consumer_has_looked():
    with connection.cursor() as cursor:
        cursor.execute(
            "select 1 from pg_stat_activity where datname = current_database() "
            "and state = 'idle' and query like '%pgmq.read(%' and pid <> pg_backend_pid()"
        )
        return cursor.fetchone()


@pytest.mark.parametrize(
    ("arguments", "jobs", "messages"),
    [
        ((), 1, 1),
        (("--pgmq", "emails"), 0, 1),
        (("--queues", "default"), 1, 0),
        (("--queues", "default", "--pgmq", "emails"), 1, 1),
        (("--exclude", "default"), 0, 1),
    ],
)
def test_the_options_say_what_a_worker_serves(committed, arguments, jobs, messages):
    consumer("emails")(print)
    noop.enqueue(i=1)
    committed.send(1)

    drain(*arguments)

    assert Job.objects.done().count() == jobs
    assert counts()[1] == messages


@pytest.mark.parametrize("delete", [False, True])
def test_a_worker_that_is_to_be_replaced_reads_no_more(committed, kinds, delete):
    handled = []

    @consumer("emails", delete=delete)
    def send_on(n):
        handled.append(n)
        committed.send(n + 1)

    committed.send(0)
    noop.enqueue(i=1)

    call_command("runjobs", max_jobs=5, verbosity=0)

    assert Job.objects.done().count() + len(handled) == 5
    assert column("read_ct") == [0]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("arguments", [("--pgmq", "emails"), ("--pgmq", "emails,others"), ()])
def test_max_jobs_counts_messages(committed, kinds, arguments, is_async):
    handled = []

    async def ahandle(n):
        handled.append(n)

    for name in ("emails", "others"):
        Queue(name).create()
        consumer(name)(ahandle if is_async else handled.append)
        Queue(name).send_batch(range(50))

    for done in (5, 10, 15):
        drain("--max-jobs", "5", "--threads", "2", *arguments)
        assert len(handled) == done, "none more, and none less where there are enough"
    drain(*arguments)

    queues = ["q_emails", "a_emails", "q_others", "a_others"]
    read = [count for queue in queues for count in column("read_ct", queue)]
    Queue("others").drop()
    assert set(read) <= {0, 1}, "none is read beyond that, and given back"


@pytest.mark.parametrize("claim", ["lease", "transaction"])
def test_max_jobs_counts_jobs_and_messages_together(committed, kinds, claim):
    consumer("emails")(print)
    committed.send_batch(range(30))
    for n in range(30):
        noop.enqueue(i=n)

    done = 0
    while done < 60:
        drain("--max-jobs", "7", "--threads", "2", "--claim", claim)
        before, done = done, Job.objects.done().count() + counts()[1]
        assert done - before == min(7, 60 - before)
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}
    assert set(column("read_ct", "a_emails")) == {1}


def test_max_jobs_ends_no_drain_before_its_time(committed, kinds):
    """What is only about to be read may be nothing."""
    consumer("emails")(print)
    for n in range(3):
        noop.enqueue(i=n)

    drain("--max-jobs", "3", "--threads", "1")

    assert Job.objects.done().count() == 3


def test_it_is_said_what_is_run(committed, capsys):
    consumer("emails")(print)

    for arguments in ((), ("--pgmq", "emails"), ("--queues", "mail")):
        call_command("runjobs", "--drain", *arguments)

    assert capsys.readouterr().err.splitlines() == [
        "Running jobs of every queue and messages of emails in this process.",
        "Running messages of emails in this process.",
        "Running jobs of mail in this process.",
    ]


@pytest.fixture
def elsewhere(committed):
    """A queue of the same name, on another database."""
    queue = Queue("emails", using="other")
    queue.create()
    yield queue
    queue.drop()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize(
    ("arguments", "handled"),
    [
        ((), ["here", "there"]),
        (("--pgmq", "emails"), ["here"]),
        (("--pgmq", "emails", "--database", "other"), ["there"]),
        (("--queues", "default"), []),
    ],
)
def test_each_database_has_a_consumer_of_its_queue(committed, elsewhere, arguments, handled):
    seen = []
    consumer("emails")(lambda message: seen.append(("here", message)))

    @consumer("emails", using="other")
    def handle(message):
        seen.append(("there", message))

    committed.send("here")
    elsewhere.send("there")

    drain(*arguments)

    assert sorted(seen) == [(where, where) for where in handled]


def test_grants_take_along_the_dead_letters_of_this_database(queue, capsys):
    consumer("emails")(print)
    consumer("emails", using="other", dead_letter="dead_there")(print)

    call_command("pgmq", "grants", "emails", "--worker", "jobs")

    assert "dead_there" not in capsys.readouterr().out


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_queue_of_another_database_alone_is_found_by_its_name(elsewhere, capsys):
    seen = []
    consumer("emails", using="other")(seen.append)
    elsewhere.send("there")

    call_command("runjobs", "--drain", "--pgmq", "emails")

    assert seen == ["there"]
    said = "Running messages of emails on 'other' in this process."
    assert capsys.readouterr().err.splitlines()[0] == said


def test_a_queue_without_a_consumer_is_a_usage_error(committed):
    consumer("emails")(print)

    with pytest.raises(
        CommandError, match=r"got other, unknown. Those that have are: emails"
    ) as error:
        drain("--pgmq", "other,emails,unknown")
    assert error.value.returncode == 2


def test_without_the_app_it_is_said_how_to_have_it(transactional_db, settings):
    settings.INSTALLED_APPS = [a for a in settings.INSTALLED_APPS if a != "django_pgjobs.pgmq"]

    with pytest.raises(CommandError, match=r"Add 'django_pgjobs.pgmq' to INSTALLED_APPS") as error:
        drain("--pgmq", "emails")
    assert error.value.returncode == 2


# ------------------------------------------------------------------------------ declarations


def test_the_handler_stays_the_function_that_it_is():
    @consumer("emails")
    def double(n):
        return 2 * n

    assert double(4) == 8
    assert list(consumers.consumers()) == [Queue("emails")]


async def asynchronous(_):
    pass


@pytest.mark.parametrize(
    ("options", "handler", "said"),
    [
        ({"queue": "Emails"}, print, "must be in lower case"),
        ({"vt": 0}, print, "vt must be at least 1 second"),
        ({"vt": -1}, print, "vt must be"),
        ({"qty": 0}, print, "qty must be a whole number"),
        ({"max_reads": 0}, print, "max_reads must be a whole number"),
        ({"dead_letter": "emails"}, print, "dead_letter must be another queue"),
        ({"dead_letter": "x" * 48}, print, "at most 47 bytes"),
        ({"atomic": True}, asynchronous, "atomic must be False for the async handler"),
        ({}, lambda: None, "must take one argument"),
        ({}, lambda a, b: None, "must take one argument"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_declared(options, handler, said):
    with pytest.raises(InvalidOption, match=said):
        consumer(**{"queue": "emails", **options})(handler)
    assert consumers.consumers() == {}


def test_a_queue_has_one_consumer():
    def first(_): ...
    def second(_): ...

    consumer("emails")(first)
    consumer("emails")(first)  # its module was imported anew

    with pytest.raises(InvalidOption, match=r"must have one consumer, got .*second and .*first"):
        consumer("emails")(second)
    with pytest.raises(InvalidOption, match="must have one consumer"):
        consumer("emails", using="default")(second)  # the routers give it too
    with pytest.raises(InvalidOption, match="must have one consumer"):
        consumer("emails", using="default")(first)  # it would be read twice
    consumer("emails", using="other")(second)
    assert list(consumers.consumers()) == [Queue("emails"), Queue("emails", "other")]
