"""An interruption hits the attempt that it is meant for, or none."""

from __future__ import annotations

import math
import threading
import time
from functools import partial

import pytest

from django_pgjobs import deadlines, job
from django_pgjobs.attempts import Held, Inbox
from django_pgjobs.board import Board
from django_pgjobs.claims import Claim
from django_pgjobs.deadlines import Deadline, Watch, interrupt_thread, withdraw_from_thread
from django_pgjobs.exceptions import Interrupted, JobTimeout
from django_pgjobs.leases import Lease
from django_pgjobs.threads import Threads
from tests.waiting import eventually


@pytest.fixture
def watch():
    started = Watch()
    yield started
    started.close()


def attempt(watch, seconds, work):
    """Run `work` under a deadline and return what the attempt failed of."""
    deadline = Deadline(seconds, watch)
    me = threading.get_ident()
    deadline.on_time(partial(interrupt_thread, me), partial(withdraw_from_thread, me), lambda: None)
    try:
        with deadline:
            work()
    except BaseException as error:  # noqa: BLE001
        return deadline.verdict(error)
    return deadline.verdict(None)


def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_what_ends_in_time_has_not_failed(watch):
    assert attempt(watch, 60, lambda: None) is None
    assert not watch._minded


def test_what_runs_on_is_interrupted(watch):
    error = attempt(watch, 0.05, lambda: spin(10))

    assert isinstance(error, JobTimeout)
    assert isinstance(error.__cause__, Interrupted)


def test_an_error_in_time_is_its_own(watch):
    def work():
        raise ValueError

    assert isinstance(attempt(watch, 60, work), ValueError)


def test_an_interruption_never_arrives_after_its_attempt(watch):
    escaped = []

    def run():
        try:
            for n in range(400):
                attempt(watch, 0.0005 + n % 7 * 0.0001, lambda: spin(0.0007))
                spin(0.0002)
        except BaseException as error:  # noqa: BLE001
            escaped.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert escaped == []
    assert not watch._minded


def test_one_that_has_ended_is_not_interrupted_any_more(watch):
    sent = []
    deadline = Deadline(60, watch)
    deadline.on_time(lambda: sent.append(1), lambda: None, lambda: None)
    with deadline:
        pass
    deadline.pass_by()  # as the watch does that saw it a moment before
    assert sent == []
    assert deadline.verdict(None) is None


def test_what_goes_on_after_its_time_is_stuck_until_it_ends(watch, monkeypatch):
    monkeypatch.setattr(deadlines, "GRACE", 0.05)
    told = threading.Event()
    deadline = Deadline(0.05, watch)
    deadline.on_time(lambda: None, lambda: None, told.set)
    with deadline:
        assert told.wait(10)
        assert deadline.stuck
    assert not deadline.stuck
    assert isinstance(deadline.verdict(None), JobTimeout)


def test_a_sooner_deadline_is_minded_though_a_later_one_came_first(watch):
    later, sooner = Deadline(3_600, watch), Deadline(0.05, watch)
    with later, sooner:
        eventually(lambda: sooner.expired)
        assert not later.expired


def test_an_interruption_that_has_not_arrived_is_taken_back(watch):
    sent, withdrawn = threading.Event(), []
    deadline = Deadline(0.01, watch)
    deadline.on_time(sent.set, lambda: withdrawn.append(1), lambda: None)
    with deadline:
        assert sent.wait(10)
    assert withdrawn == [1]


@pytest.mark.usefixtures("kinds")
def test_the_supervisor_minds_it_no_longer_than_the_handler_runs(watch):
    """What comes after the handler, such as a commit, has no time limit."""

    @job(kind="timed", timeout=60)
    def timed():
        pass

    board = Board.create(1)
    threads = Threads(Lease(1, "w", board), 0, Inbox(), watch, "default")
    claim = Claim(1, "timed", "{}", 1, 0, 5, 1)
    deadline = threads._begin(Held(claim, board.take(), timed))
    assert board.overdue(math.inf)
    with deadline:
        pass
    assert deadline.verdict(None) is None
    assert not board.overdue(math.inf)
