"""The duties beside the jobs: renew leases, record deaths, reap, prune; see that schedules fire and tables fit.

Invariant: heartbeats go on whatever else fails, since without them every job of a worker is lost.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from psycopg import errors

from django_pgjobs import conf, leases, reaper, schema
from django_pgjobs.leases import Lease
from django_pgjobs.sessions import (
    CONNECTION_ERRORS,
    DATABASE_ERRORS,
    Execute,
    Session,
    reason,
)
from django_pgjobs.ticker import Ticker

logger = logging.getLogger(__name__)

AGAIN = 1.0  # seconds until a failed duty is tried again
_SILENT = 60.0  # seconds until it is said again that the database cannot be reached


class Keeper:
    """Keeps the leases of some workers, on a connection of its own."""

    def __init__(self, database: str) -> None:
        """Prepare; the connection opens with the first duty."""
        self.session = Session(database)
        self.ticker = Ticker(database)
        self._next_beat = 0.0
        self._next_reap = 0.0
        self._compared = False  # whether the tables were compared with this code's migrations
        self._complained = 0.0  # when it was last said that the database is no use

    def keep(self, kept: Sequence[Lease], *, stopping: bool) -> tuple[list[Lease], float]:
        """Do what is due; return the leases that are lost, and the seconds until more is due."""
        interval = conf.get().heartbeat
        lost: list[Lease] = []

        def beat(execute: Execute) -> None:
            now = time.monotonic()
            answer = leases.renew(execute, kept, stopping=stopping)
            lost.extend(answer.lost)
            self._next_beat = now + interval
            self.ticker.wake(scheduled=answer.scheduled)

        done = True
        if kept and time.monotonic() >= self._next_beat:
            done = self.attempt(beat)
        if done and time.monotonic() >= self._next_reap:
            done = self.attempt(self._reap)
        if done and not self._compared:
            self._compared = self.attempt(_compare)
        if not done:
            return lost, min(AGAIN, interval)
        due = min(self._next_beat, self._next_reap) if kept else self._next_reap
        return lost, max(0.0, due - time.monotonic())

    def prepare_drain(self, seconds: float = math.inf) -> None:
        """Reap and fire schedules once, so that what comes due by that is drained too. Before all else."""
        self.attempt(self._reap)
        self.ticker.fire_once(seconds)

    def cut(self, seconds: float) -> None:
        """Break the connections on which nothing was answered for so long. For other threads."""
        self.session.cut(seconds)
        self.ticker.cut(seconds)

    def close(self) -> None:
        """Do nothing more."""
        self.ticker.end()
        self.session.close()

    def _reap(self, _execute: Execute) -> None:
        now, interval = time.monotonic(), conf.get().heartbeat
        # Somebody may have locked the table of jobs, to change it say. Heartbeats go on.
        patience = min(reaper.PATIENCE, interval / 2)
        more = reaper.run(partial(self.session.execute, patience=patience)).more
        self._next_reap = now if more else now + interval

    def reap_now(self) -> None:
        """Reap with the next `keep()`: a death has been recorded."""
        self._next_reap = 0.0

    def attempt(self, duty: Callable[[Execute], None]) -> bool:
        """Do one duty and say whether that went well. What goes wrong is logged, and never raised."""
        try:
            duty(self.session.execute)
        except errors.LockNotAvailable:
            logger.warning("A duty could not be done, for a table is locked. It is tried again.")
            return False
        except DATABASE_ERRORS as error:
            self.session.close()  # a new one may find another server, after a failover
            self.complain(error)
            return False
        except Exception:  # the other duties must go on
            logger.exception("A duty failed, trying again.")
            return False
        if self._complained and self.session.is_open:  # not so after a duty with nothing to do
            logger.warning("The keeper reaches the database again.")
            self._complained = 0.0
        return True

    def complain(self, error: Exception) -> None:
        """Say that the database is no use: now and then, for it is tried every second."""
        now = time.monotonic()
        if now - self._complained > _SILENT or not self._complained:
            what = "cannot reach" if isinstance(error, CONNECTION_ERRORS) else "is refused by"
            logger.warning("The keeper %s the database, trying again: %s", what, reason(error))
            self._complained = now


def _compare(execute: Execute) -> None:
    """Say what is to be migrated: jobs run on the tables of the release before, but not for ever."""
    if missing := schema.missing_migrations(execute):
        logger.warning(
            "The database must have every migration of %s, got %s unapplied. Run manage.py migrate.",
            schema.APP,
            ", ".join(missing),
        )


@contextmanager
def kept(
    keeper: Keeper, lease: Lease, stopping: Callable[[], bool], lose: Callable[[], None]
) -> Iterator[None]:
    """Keep one lease from a thread beside the block, and as long as that. A loss calls `lose`."""
    gone = threading.Event()

    def run() -> None:
        pause = 0.0
        while not gone.wait(pause):
            lost, pause = keeper.keep([lease], stopping=stopping())
            if lost:
                lose()
                break
        keeper.close()

    thread = threading.Thread(target=run, name="pgjobs-keeper", daemon=True)
    thread.start()
    try:
        yield
    finally:
        gone.set()
        thread.join(timeout=5.0)
