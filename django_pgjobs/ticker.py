"""The thread that fires schedules, beside the one that keeps leases: what holds it up delays no heartbeat.

Invariant: a project without schedules has neither the thread nor its connection. The heartbeat tells
whether there are any; from then on the next tick is known, and a look now and then finds what has been
changed meanwhile.
"""

from __future__ import annotations

import logging
import math
import threading
import time

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import IsolationLevel

from django_pgjobs import registry, schedules
from django_pgjobs.mailbox import Mailbox
from django_pgjobs.sessions import DATABASE_ERRORS, break_off, connect, reason

logger = logging.getLogger(__name__)

LOOK = 5.0  # seconds after which a change of the table is noticed
AGAIN = 0.5  # seconds until what failed, or somebody else holds, is tried again
_ONCE = 30.0  # seconds for what a drain waits for
_REFUSED = 60.0  # seconds until a schedule that cannot be fired is tried again
_SILENT = 60.0  # seconds until it is said again that the database is no use


class Ticker:
    """Fires the schedules of one database, from a thread and on a connection of its own."""

    def __init__(self, database: str) -> None:
        """Prepare; the thread starts when there are schedules."""
        self._database = database
        self._thread: threading.Thread | None = None
        self._inbox: Mailbox[None] = Mailbox()
        self._ended = False
        self._idle = False  # there was no schedule at the last look
        self._connection: BaseDatabaseWrapper | None = None
        self._since: float | None = None  # when the round began that has not ended
        self._in_step = False  # whether the table has been brought up to the code
        self._refused: dict[int, float] = {}  # schedules, and when to try them again
        self._complained = -math.inf

    def wake(self, *, scheduled: bool) -> None:
        """Look, if there is anything: in the table, or in the code."""
        if self._ended or not (scheduled or self._is_declared):
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pgjobs-ticker", daemon=True)
            self._thread.start()
        elif self._idle:
            self._inbox.put(None)

    def fire_once(self, seconds: float = _ONCE) -> None:
        """Fire what is due by now, and return when that is done, well or not, or takes too long."""
        thread = threading.Thread(target=self._run_once, name="pgjobs-ticker", daemon=True)
        thread.start()
        thread.join(min(seconds, _ONCE))

    def cut(self, seconds: float) -> None:
        """Break the connection if a round has not ended for so long. For other threads."""
        since, connection = self._since, self._connection
        if since is not None and connection is not None and time.monotonic() - since > seconds:
            break_off(connection)

    def end(self) -> None:
        """End the thread."""
        self._ended = True
        self._inbox.put(None)
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    @property
    def _is_declared(self) -> bool:
        return not self._in_step and any(kind.schedules for kind in registry.kinds().values())

    # ----------------------------------------------------------------------------- in the thread

    def _run(self) -> None:
        while not self._ended:
            pause = self._attempt()
            self._idle = pause is None
            self._inbox.take(pause)
        self._close()

    def _run_once(self) -> None:
        while self._attempt() == 0.0:
            pass
        self._close()

    def _attempt(self) -> float | None:
        """Do a round; return the seconds until the next one, None for when there is a schedule."""
        self._since = time.monotonic()
        try:
            return self._round()
        except Exception as error:  # noqa: BLE001 -- whatever it is, the next round may go well
            self._close()  # a new one may find another server, after a failover
            self._complain(error)
            return AGAIN
        finally:
            self._since = None

    def _round(self) -> float | None:
        self._connect()
        if not self._in_step:
            schedules.synchronise(self._database)
            self._in_step = True
        now = time.monotonic()
        self._refused = {pk: until for pk, until in self._refused.items() if until > now}
        wait = schedules.seconds_to_tick(self._database, self._refused)
        if wait is None:
            self._close()
            return LOOK if self._refused else None
        if wait > 0:
            return min(wait, LOOK)
        fired, refused = schedules.tick(self._database, self._refused)
        self._refused |= dict.fromkeys(refused, now + _REFUSED)
        return 0.0 if fired or refused else AGAIN

    def _connect(self) -> None:
        """Give this thread a connection that is no pool's, at READ COMMITTED."""
        if self._connection is None:
            self._connection = connect(self._database)
            self._connection.connection.isolation_level = IsolationLevel.READ_COMMITTED
            connections[self._database] = self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            del connections[self._database]
            if connection.connection is not None:
                connection.connection.close()  # inside atomic() Django's own would wait for its end

    def _complain(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._complained > _SILENT:
            self._complained = now
            said = reason(error) if isinstance(error, DATABASE_ERRORS) else repr(error)
            logger.warning("Schedules cannot be looked after, trying again: %s", said)
