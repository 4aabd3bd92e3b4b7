"""Sessions of the workers, looked at all the time: how many, and whether one idles in a transaction."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Self

import psycopg

from tests.chaos.nemesis import Nemesis
from tests.chaos.world import APPLICATION, CHILDREN, SUPERVISORS, THREADS, World

LONGEST = 1.0  # seconds
# Each child: the pump, LISTEN and the threads. Beside them the supervisors' keepers, and the reaper.
MOST = SUPERVISORS * (CHILDREN * (2 + THREADS) + 1) + 1


class Monitor:
    """Looks five times a second, in a thread of its own."""

    def __init__(self, world: World, nemesis: Nemesis) -> None:
        self._world = world
        self._nemesis = nemesis
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.idle: set[str] = set()
        self.looks = 0

    def sessions(self) -> int:
        """Count the sessions of the workers and the reaper now."""
        with self._world.connect() as connection:
            row = connection.execute(
                "select count(*) from pg_stat_activity where application_name = %s", [APPLICATION]
            ).fetchone()
            return int(row[0]) if row else 0

    def _run(self) -> None:
        while not self._ended.wait(0.2):
            with suppress(psycopg.Error):
                self._look()

    def _look(self) -> None:
        # What is stopped, slow or silent cannot end its transaction.
        calm = self._nemesis.calm_since
        with self._world.connect() as connection:
            rows = connection.execute(
                "select pid, query from pg_stat_activity where application_name = %s "
                "and state like 'idle in transaction%%' "
                "and state_change < clock_timestamp() - make_interval(secs => %s)",
                [APPLICATION, LONGEST],
            ).fetchall()
        self.looks += 1
        if calm == self._nemesis.calm_since and time.monotonic() - calm > 2 * LONGEST:
            self.idle |= {f"{pid}: {query[:200]}" for pid, query in rows}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
