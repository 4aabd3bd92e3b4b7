"""Requests reach the handlers that they are meant for, and progress the rows that it is about."""

from __future__ import annotations

import math

import psycopg
import pytest

from django_pgjobs import job as declare
from django_pgjobs import relay
from django_pgjobs.attempts import Held
from django_pgjobs.context import JobContext
from django_pgjobs.lines import Line
from django_pgjobs.models import Job
from django_pgjobs.relay import Relay
from tests.db.rows import AGO, claim_of, execute, make
from tests.db.sessions import in_thread

pytestmark = pytest.mark.django_db

WORKER = 7  # of a running row, as rows.make() makes it


class Running:
    """Handlers at work, as the relay sees them, and the statements that it made for them."""

    def __init__(self):
        self.listening = []
        self.asked = []
        self.statements = []

    def start(self, job, **claim):
        line = Line("default")
        held = Held(claim_of(job, **claim), 0, None, line)
        self.listening.append((held, line))
        return JobContext(held.claim, line), held

    def end(self, held):
        self.listening = [pair for pair in self.listening if pair[0] is not held]

    def ask(self, held):
        held.line.asked = True
        self.asked.append(held.claim.id)

    def execute(self, sql, params):
        self.statements.append(params)
        return execute(sql, params)


def raising(error):
    def execute(*_):
        raise error

    return execute


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(relay, "time", clock)
    return clock


@pytest.fixture
def running():
    return Running()


@pytest.fixture
def carry(running, clock):
    """Carry what there is, so many seconds later."""
    one = Relay(WORKER, poll=1.0)

    def carried(seconds=0.0):
        clock.now += seconds
        before = len(running.statements)
        one.carry(running.execute, running)
        return len(running.statements) - before

    carried.relay = one
    return carried


def progress(job):
    meta = Job.objects.values_list("meta", flat=True).get(pk=job.pk)
    said = meta.get("progress")
    return said and (said["fraction"], said["text"])


# ------------------------------------------------------------------------------- requests to stop


def test_a_request_reaches_its_handler_and_no_other(carry, running):
    wanted, other = make("running"), make("running")
    told, _ = running.start(wanted)
    spared, _ = running.start(other)
    carry()
    assert not told.cancelled
    wanted.cancel()
    carry(1.0)
    assert (told.cancelled, spared.cancelled) == (True, False)
    assert running.asked == [wanted.pk]


def test_there_is_one_statement_each_poll_and_none_while_nobody_listens(carry, running):
    assert [carry(0.3) for _ in range(10)] == [0] * 10
    assert carry.relay.seconds == math.inf
    running.start(make("running"))
    running.start(make("running"))
    assert [carry(0.25) for _ in range(13)].count(1) <= 4
    assert 0 < carry.relay.seconds <= 1.0
    running.listening = []
    assert [carry(0.3) for _ in range(10)] == [0] * 10


def test_one_that_was_asked_is_asked_no_more(carry, running):
    job = make("running")
    running.start(job)
    job.cancel()
    assert carry() == 1
    assert [carry(1.0) for _ in range(3)] == [0] * 3
    assert running.asked == [job.pk]


def test_a_request_to_a_later_claim_is_not_passed_to_this_one(carry, running):
    """The row was reaped and claimed again, by this worker or by another one."""
    mine, theirs = make("running", claims=2), make("running", locked_by=8)
    running.start(mine, claims=1)
    running.start(theirs)
    Job.objects.cancel()
    assert carry() == 1
    assert running.asked == []


# --------------------------------------------------------------------------------------- progress


def test_progress_is_written_at_most_once_a_second_and_the_latest_counts(carry, running):
    job = make("running", meta={"schedule": "nightly"})
    context, _ = running.start(job)
    context.progress(0.1, "one")
    carry()
    assert progress(job) == (0.1, "one")
    context.progress(0.2)
    context.progress(0.3, "three")
    carry(0.5)
    assert progress(job) == (0.1, "one")
    carry(0.5)
    assert progress(job) == (0.3, "three")
    meta = Job.objects.get(pk=job.pk).meta
    assert meta["schedule"] == "nightly"
    assert meta["progress"]["attempt"] == 1
    assert meta["progress"]["at"].startswith(str(AGO.year)[:2])


def test_a_short_poll_makes_no_further_writes(running, clock):
    job = make("running")
    context, _ = running.start(job)
    one = Relay(WORKER, poll=0.1)
    written = set()
    for n in range(50):
        context.progress(n / 50)
        one.carry(running.execute, running)
        written.add(progress(job))
        clock.now += 0.1
    assert 5 <= len(written) <= 6


def test_nothing_said_is_nothing_written(carry, running):
    job = make("running")
    context, _ = running.start(job)
    context.progress(0.5)
    carry()
    carry(5.0)
    assert [params["rows"] for params in running.statements][-1] == "[]"


def test_last_words_are_written_at_once(carry, running):
    job = make("running")
    context, held = running.start(job)
    context.progress(0.5)
    carry()
    context.progress(1, "all")
    running.end(held)
    carry.relay.note_end(held)
    assert carry(0.1) == 1
    assert progress(job) == (1.0, "all")
    assert carry(0.1) == 0


def test_progress_of_a_lost_lease_changes_nothing(carry, running):
    again = make("running", claims=2, meta={"progress": "the other attempt's"})
    theirs, done = make("running", locked_by=8), make("done")
    for job, claims in [(again, 1), (theirs, 1), (done, 1)]:
        context, held = running.start(job, claims=claims)
        context.progress(0.5)
        if job is done:
            running.end(held)
            carry.relay.note_end(held)
    before = list(Job.objects.order_by("pk").values())
    assert carry() == 1
    assert list(Job.objects.order_by("pk").values()) == before


@pytest.mark.django_db(transaction=True)
def test_a_row_that_somebody_has_locked_is_left_and_no_other_waits_for_it(
    carry, running, other_session
):
    locked, free = make("running"), make("running")
    for job in locked, free:
        running.start(job)[0].progress(0.5)
    other_session.execute("select from django_pgjobs_job where id = %s for update", [locked.pk])
    with in_thread(carry) as result:
        assert result() == 1
    assert (progress(locked), progress(free)) == (None, (0.5, ""))
    other_session.rollback()
    carry(1.0)
    assert progress(locked) == (0.5, ""), "it need not be said again"


def test_a_statement_that_fails_leaves_what_was_said_for_the_next(carry, running, monkeypatch):
    job = make("running")
    context, held = running.start(job)
    context.progress(0.5)
    running.end(held)
    carry.relay.note_end(held)
    with monkeypatch.context() as patch:
        patch.setattr(running, "execute", raising(psycopg.OperationalError("lost")))
        with pytest.raises(psycopg.OperationalError):
            carry()
    carry(0.1)
    assert progress(job) == (0.5, "")


def test_one_that_the_server_refuses_is_logged_and_holds_up_no_round(
    carry, running, monkeypatch, caplog
):
    job = make("running")
    running.start(job)[0].progress(0.5)
    with monkeypatch.context() as patch:
        patch.setattr(running, "execute", raising(psycopg.errors.RaiseException("no progress")))
        carry()
    assert "were refused: no progress" in caplog.text
    job.cancel()
    carry(1.0)
    assert running.asked == [job.pk]


def test_an_atomic_job_says_nothing(carry, running, kinds):
    @declare(atomic=True, takes_context=True)
    def import_all(context): ...

    row = make("running", kind="import_all")
    held = Held.of(claim_of(row), 0, "default")
    running.listening = [(held, held.line)]
    JobContext(held.claim, held.line).progress(0.5)
    carry()
    assert progress(row) is None
