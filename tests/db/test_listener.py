"""The listener wakes its worker for what it serves, not more often than needed, on any connection."""

from __future__ import annotations

import itertools
import logging
import math
import socket
import threading
import time
from contextlib import closing, suppress
from queue import SimpleQueue

import psycopg
import pytest
from django.db import connection, connections
from psycopg.pq import TransactionStatus

from django_pgjobs import listener, notify
from django_pgjobs.listener import Ear, Listener
from django_pgjobs.sessions import connect
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


class Wakes(SimpleQueue):
    """Stands for the worker: counts how often it was woken."""

    def __call__(self) -> None:
        self.put(None)

    def next(self) -> None:
        self.get(timeout=20)


@pytest.fixture
def wakes():
    return Wakes()


@pytest.fixture
def send(database_url):
    """Another session that sends wake-ups."""
    with psycopg.connect(database_url, autocommit=True) as session:
        yield lambda queue: session.execute(
            "select pg_notify(%s, %s)", [notify.CHANNEL, queue]
        ).fetchall()


@pytest.fixture
def start(wakes):
    """Start a listener that serves the queue `mail`."""
    started = []

    def start(listen="default", jobs="default"):
        started.append(Listener(listen, jobs, lambda queue: queue == "mail", wakes))
        return started[-1]

    yield start
    for one in started:
        one.close()
        assert not one._thread.is_alive()


@pytest.fixture
def ready(start, wakes):
    """A listener that has passed its test and woken the worker for what was before."""
    one = start()
    wakes.next()
    return one


def listening_backends() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "select pid from pg_stat_activity where datname = current_database() "
            "and query ilike 'listen %'"
        )
        return [pid for (pid,) in cursor.fetchall()]


def settled(one) -> bool:
    return one._look_at == math.inf


def test_it_wakes_the_worker_at_once_and_again_while_producers_may_be_quiet(ready, wakes, send):
    for queue in ("mail", notify.EVERY_QUEUE):
        sent = time.monotonic()
        send(queue)
        for _ in range(3):
            wakes.next()
        eventually(lambda: settled(ready))
        assert time.monotonic() - sent >= notify.LONGEST_PAUSE
        while not wakes.empty():
            wakes.next()


def test_other_queues_wake_nobody(ready, wakes, send, monkeypatch):
    asked = []
    monkeypatch.setattr(ready, "_serves", asked.append)
    for _ in range(10):
        send("reports")
    eventually(lambda: len(asked) == 10)
    assert settled(ready)
    assert wakes.empty()


def test_a_burst_wakes_no_more_often_than_it_may(ready, wakes, monkeypatch):
    """On a clock of the test's: a notification each millisecond for a second, then silence."""
    ready.close()
    clock = 1_000_000.0
    woken = []
    monkeypatch.setattr(listener.time, "monotonic", lambda: clock)
    monkeypatch.setattr(ready, "_wake", lambda: woken.append(clock))

    class Ear:
        left = 1_000

        def hear(self, until):
            nonlocal clock
            if not self.left:
                clock = until
                return []
            self.left -= 1
            clock += 0.001
            return [(notify.CHANNEL, "mail")]

    ear = Ear()
    while ear.left:
        ready._attend(ear, math.inf)
    last = clock
    while not settled(ready):
        ready._attend(ear, math.inf)
    gaps = [after - before for before, after in itertools.pairwise(woken)]
    assert min(gaps) > 0.99 * listener.LOOK
    burst = [moment for moment in woken if moment <= last]
    assert 19 <= len(burst) <= 21, "no job of a burst waits longer than that"
    assert last + notify.LONGEST_PAUSE <= woken[-1] <= last + 2 * notify.LONGEST_PAUSE


def test_looking_again_delays_no_answer(ready, wakes, monkeypatch):
    """On a clock of the test's: it looked by itself 20 ms before the second notification."""
    ready.close()
    clock = 1_000_000.0
    woken = []
    monkeypatch.setattr(listener.time, "monotonic", lambda: clock)
    monkeypatch.setattr(ready, "_wake", lambda: woken.append(round(clock - 1_000_000, 3)))

    class Ear:
        def hear(self, until):
            nonlocal clock
            clock = min(until, 1_000_000.0 if not woken else 1_000_000.07)
            return [] if clock == until else [(notify.CHANNEL, "mail")]

    for _ in range(3):
        ready._attend(Ear(), math.inf)
    assert woken == [0, listener.LOOK, 0.07]


def test_a_terminated_connection_is_replaced_and_hears_again(ready, wakes, send, monkeypatch):
    monkeypatch.setattr(listener, "_FIRST_BACKOFF", 0.05)
    [backend] = listening_backends()
    with connection.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(%s)", [backend])
    wakes.next()  # for what was sent meanwhile
    [another] = listening_backends()
    assert another != backend
    send("mail")
    wakes.next()


class SilentProxy:
    """Stands between client and server, until it falls silent with its sockets open."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listening]
        self.port = self._listening.getsockname()[1]
        self.silent = threading.Event()
        self.clients = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                self.clients += 1
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                mute = not self.silent.is_set()  # the next connections are well again
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(*ends, mute), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, mute: bool) -> None:  # noqa: FBT001
        with suppress(OSError):
            while data := source.recv(65_536):
                if not (mute and self.silent.is_set()):
                    target.sendall(data)


@pytest.fixture
def proxy(transactional_db, monkeypatch):
    """New connections go through this proxy; the test's own is there already."""
    facts = connection.get_connection_params()
    proxy = SilentProxy(facts["host"], int(facts["port"]))
    monkeypatch.setitem(connections.settings["default"], "HOST", "127.0.0.1")
    monkeypatch.setitem(connections.settings["default"], "PORT", str(proxy.port))
    yield proxy
    proxy.close()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(listener, "_CHECK", 0.2)
    monkeypatch.setattr(listener, "_ANSWER", 0.2)


@pytest.mark.usefixtures("impatient")
def test_a_connection_without_an_answer_is_replaced(proxy, start, wakes, send, caplog):
    listening = start()
    wakes.next()
    send("mail")
    wakes.next()
    eventually(lambda: settled(listening))
    while not wakes.empty():
        wakes.next()
    before = proxy.clients
    proxy.silent.set()
    wakes.next()  # as after every new connection
    assert proxy.clients == before + 2, "one to listen and one for its test"
    send("mail")
    wakes.next()
    assert "no answer" in caplog.text


def test_a_silent_but_living_connection_is_left_alone(ready, wakes, send, monkeypatch, caplog):
    [backend] = listening_backends()
    monkeypatch.setattr(listener, "_CHECK", 0.01)
    send("reports")  # it waits by the new time from now on
    asked = "select from pg_stat_activity where pid = %s and query = 'select 1'"
    with connection.cursor() as cursor:
        eventually(lambda: cursor.execute(asked, [backend]) or cursor.fetchall())
        for _ in range(20):  # in between, and while an answer is on its way
            send("mail")
            wakes.next()
        cursor.execute(asked, [backend])
        assert cursor.fetchall()
    assert caplog.records == []


def is_idle(ear) -> bool:
    return ear._pgconn.transaction_status == TransactionStatus.IDLE


def test_what_comes_with_an_answer_is_heard(send):
    bell, button = socket.socketpair()
    with bell, button, closing(Ear("default", bell)) as ear:
        for _ in range(30):  # before the answer, after it, and in one read with it
            ear._sign_of_life = -math.inf
            assert ear.hear(math.inf) == []  # it asks
            assert ear._pgconn.transaction_status == TransactionStatus.ACTIVE
            send("mail")
            heard = eventually(lambda: ear.hear(time.monotonic() + 1))
            assert heard == [(notify.CHANNEL, "mail")]
            eventually(lambda: ear.hear(time.monotonic()) or is_idle(ear))


def test_where_no_notification_comes_through_one_warning_says_what_to_do(
    start, wakes, monkeypatch, caplog
):
    """Notifications stay in their database: so they are lost here, as behind a pooler."""
    monkeypatch.setattr(listener, "_TEST", 0.3)
    deaf = start(listen="default", jobs="other")
    deaf._thread.join(20)
    assert not deaf._thread.is_alive()
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    for word in ("'default'", "LISTEN_DATABASE", "--no-notify", "polling"):
        assert word in record.getMessage()
    assert eventually(lambda: not listening_backends())
    assert wakes.empty()


def test_it_goes_on_trying_where_the_server_cannot_be_reached(start, wakes, monkeypatch, caplog):
    monkeypatch.setattr(listener, "_FIRST_BACKOFF", 0.05)
    with monkeypatch.context() as unreachable:
        unreachable.setitem(connections.settings["default"], "HOST", "127.0.0.1")
        unreachable.setitem(connections.settings["default"], "PORT", "1")
        start()
        eventually(lambda: len(caplog.records) >= 3)
        assert wakes.empty()
    wakes.next()


def test_closing_it_ends_its_connection(ready):
    assert len(listening_backends()) == 1
    ready.close()
    eventually(lambda: not listening_backends())


def test_a_silent_peer_is_given_up_unless_the_project_says_otherwise(monkeypatch):
    options = connections["default"].settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "keepalives_count", 7)
    with closing(connect("default")) as wrapper:
        parameters = wrapper.connection.info.get_parameters()
    assert parameters["tcp_user_timeout"] == "25000"
    assert parameters["keepalives_idle"] == "10"
    assert parameters["keepalives_count"] == "7"
