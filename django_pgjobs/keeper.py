"""The duties beside the jobs: renew leases, record deaths, reap, prune.

Invariant: heartbeats go on whatever else fails, since without them every job of a worker is lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from django_pgjobs import conf, leases, reaper
from django_pgjobs.leases import Lease
from django_pgjobs.sessions import CONNECTION_ERRORS, Session

logger = logging.getLogger(__name__)

_AGAIN = 1.0  # seconds until a failed duty is tried again


class Keeper:
    """Keeps the leases of some workers, on a connection of its own."""

    def __init__(self, database: str) -> None:
        """Prepare; the connection opens with the first duty."""
        self.session = Session(database)
        self._next_beat = 0.0

    def keep(self, kept: Sequence[Lease], *, stopping: bool) -> tuple[list[Lease], float]:
        """Do what is due; return the leases that are lost, and the seconds until more is due."""
        interval = conf.get().heartbeat
        lost: list[Lease] = []
        try:
            if kept and time.monotonic() >= self._next_beat:
                lost = leases.renew(self.session.execute, kept, stopping=stopping)
                self._next_beat = time.monotonic() + interval
            if reaper.run(self.session.execute).more:
                return lost, 0.0
        except CONNECTION_ERRORS as error:
            logger.warning("The keeper cannot reach the database, trying again: %s", error)
            return lost, min(_AGAIN, interval)
        except Exception:
            logger.exception("A duty failed, trying again.")
            return lost, min(_AGAIN, interval)
        return lost, min(interval, max(0.0, self._next_beat - time.monotonic()))


def keep_in_thread(
    keeper: Keeper, lease: Lease, stopping: Callable[[], bool], lose: Callable[[], None]
) -> Callable[[], None]:
    """Keep one lease in a thread of this process; return what ends it. A loss calls `lose`."""
    gone = threading.Event()

    def run() -> None:
        pause = 0.0
        while not gone.wait(pause):
            lost, pause = keeper.keep([lease], stopping=stopping())
            if lost:
                lose()
                break
        keeper.session.close()

    thread = threading.Thread(target=run, name="pgjobs-keeper", daemon=True)
    thread.start()

    def end() -> None:
        gone.set()
        thread.join(timeout=5.0)

    return end
