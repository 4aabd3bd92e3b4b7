"""Hear the wake-ups that producers send: a thread with a connection of its own.

Invariant: wake-ups wake the worker at most once per LOOK seconds, and it looks again until no producer can have
dropped a wake-up since the last one that came. Whatever becomes of the connection, jobs are found
by polling.
"""

from __future__ import annotations

import logging
import math
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing

import django.db
import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from django_pgjobs import statements
from django_pgjobs.notify import CHANNEL, EVERY_QUEUE, LONGEST_PAUSE, SHORTEST_PAUSE
from django_pgjobs.poolers import is_lent
from django_pgjobs.sessions import Session, connect

logger = logging.getLogger(__name__)

LOOK = SHORTEST_PAUSE  # seconds between two looks at least; the gaps double after the last wake-up

_TEST_CHANNEL = f"{CHANNEL}_test"
_TEST = 5.0  # seconds in which the first notification must come
_CHECK = 10.0  # seconds of silence after which the server is asked for a sign of life
_ANSWER = 5.0  # seconds that it gets: keepalives do not see a proxy that says nothing
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.5, 5.0  # seconds between tries to connect


class Deaf(Exception):
    """The connection is well and yet no notification comes through it: what comes instead."""


class Ear:
    """One connection that listens."""

    def __init__(
        self, alias: str, bell: socket.socket, channels: Sequence[str] = (CHANNEL,)
    ) -> None:
        """Connect and listen to the channels; when something comes from `bell`, no wait takes time any more.

        Raises:
            Deaf: the session is lent by a pooler, and a LISTEN would be left in it for others.

        """
        self._wrapper = connect(alias)
        if is_lent(self._wrapper):
            self._wrapper.close()
            raise Deaf("a pooler in transaction mode")
        self._pgconn = self._wrapper.connection.pgconn
        self._heard: list[tuple[str, str]] = []
        # What comes with the answers to these would be dropped without a handler.
        self._wrapper.connection.add_notify_handler(
            lambda notice: self._heard.append((notice.channel, notice.payload))
        )
        for channel in (*channels, _TEST_CHANNEL):
            listen = sql.SQL("listen {}").format(sql.Identifier(channel))
            self._wrapper.connection.execute(listen)
        self._sign_of_life = self._asked = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._pgconn.socket, selectors.EVENT_READ)
        self._selector.register(bell, selectors.EVENT_READ)

    def close(self) -> None:
        """Close the connection."""
        self._selector.close()
        self._wrapper.close()

    def hear(self, until: float) -> list[tuple[str, str]]:
        """Wait for notifications, a sign of life or that moment; return channels and payloads.

        Raises:
            psycopg.OperationalError: the connection is lost, or nothing answers.

        """
        asking = self._pgconn.transaction_status == TransactionStatus.ACTIVE
        due = self._asked + _ANSWER if asking else self._sign_of_life + _CHECK
        seconds = max(0.0, min(until, due) - time.monotonic())
        if not self._heard and self._selector.select(seconds):
            self._read()
        elif time.monotonic() >= due:
            if asking:
                raise psycopg.OperationalError(f"no answer within {_ANSWER:g} s")
            self._pgconn.send_query(b"select 1")
            self._asked = time.monotonic()
        heard, self._heard = self._heard, []
        return heard

    def _read(self) -> None:
        self._pgconn.consume_input()
        self._sign_of_life = time.monotonic()
        while not self._pgconn.is_busy() and self._pgconn.get_result():
            pass  # the answer to `select 1` says nothing else
        # After that: what came behind an answer is read with it.
        while notice := self._pgconn.notifies():
            self._heard.append((notice.relname.decode(), notice.extra.decode()))


class Listener:
    """Listens until it is closed, on one connection after the other."""

    channels: Sequence[str] = (CHANNEL,)

    def __init__(
        self, listen: str, jobs: str, serves: Callable[[str], bool], wake: Callable[[], None]
    ) -> None:
        """Listen on the alias `listen` for jobs that come in through the alias `jobs`."""
        self._alias = listen
        self._jobs = jobs
        self._serves = serves
        self._wake = wake
        self._wanted = False  # whether a wake-up came for which the worker is still to be woken
        self._answered = -math.inf  # when it was last woken for one
        self._until = -math.inf  # until when producers may drop others
        self._look_at = math.inf  # when to wake the worker next
        self._gap = LOOK
        self._has_heard = False
        self._closed = threading.Event()
        self._bell, self._button = socket.socketpair()  # closing one end rings at the other
        self._thread = threading.Thread(target=self._run, name="pgjobs-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and its connection."""
        self._closed.set()
        self._button.close()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        with self._bell:
            self._listen()

    def _listen(self) -> None:
        backoff = _FIRST_BACKOFF
        while not self._closed.is_set():
            try:
                with closing(Ear(self._alias, self._bell, self.channels)) as ear:
                    self._test(ear)
                    backoff = _FIRST_BACKOFF
                    logger.info("Listening for wake-ups on the database %r.", self._alias)
                    self._wake()  # for what was sent while nobody listened
                    while not self._closed.is_set():
                        self._attend(ear, math.inf)
            except (psycopg.Error, django.db.Error, OSError) as error:
                logger.warning("The listener has no connection, trying again: %s", error)
            except Deaf as deaf:
                if not self._has_heard:
                    logger.warning(
                        "Wake-ups must come through the database %r, got %s. Jobs are found by "
                        "polling. Name an alias that bypasses the pooler and leads to the database "
                        "of the jobs in PGJOBS['LISTEN_DATABASE'], or use --no-notify.",
                        self._alias,
                        deaf,
                    )
                    return
                logger.warning("The listener hears nothing, connecting again.")
            self._closed.wait(backoff)
            backoff = min(backoff * 2, _LONGEST_BACKOFF)

    def _test(self, ear: Ear) -> None:
        """Send a notification the way that producers do, and wait for it."""
        token = secrets.token_hex(8)
        with closing(Session(self._jobs)) as session:
            session.execute(statements.NOTIFY, {"channel": _TEST_CHANNEL, "payload": token})
        deadline = time.monotonic() + _TEST
        while (_TEST_CHANNEL, token) not in self._attend(ear, deadline):
            if self._closed.is_set():
                return
            if time.monotonic() >= deadline:
                raise Deaf(f"none within {_TEST:g} s")
        self._has_heard = True

    def _attend(self, ear: Ear, until: float) -> list[tuple[str, str]]:
        """Hear what comes next, wake the worker where that is due."""
        heard = ear.hear(min(until, self._look_at))
        now = time.monotonic()
        if any(self._is_for_us(channel, payload) for channel, payload in heard):
            self._wanted = True
            self._until = now + LONGEST_PAUSE
            self._gap = LOOK
            self._look_at = min(self._look_at, max(now, self._answered + LOOK))
        if now >= self._look_at:
            self._wake()
            if self._wanted:  # a look of our own delays no answer
                self._answered, self._wanted = now, False
            self._look_at = now + self._gap if now < self._until else math.inf
            self._gap *= 2
        return heard

    def _is_for_us(self, channel: str, payload: str) -> bool:
        return channel == CHANNEL and (payload == EVERY_QUEUE or self._serves(payload))
