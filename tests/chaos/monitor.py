"""The workers from outside, looked at all the time: their sessions, and how many of a key are at work."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any, Self

import psycopg

from tests.app.mixed_rules import SLOTS
from tests.chaos.nemesis import Nemesis
from tests.chaos.world import APPLICATION, CHILDREN, SUPERVISORS, THREADS, World

LONGEST = 1.0  # seconds
EVERY = 0.05  # seconds from look to look
# Each child: the pump, LISTEN and the threads. Beside them the supervisors' keepers and their tickers,
# and the reaper.
MOST = SUPERVISORS * (CHILDREN * (2 + THREADS) + 2) + 1


class Monitor:
    """Looks twenty times a second, in a thread of its own."""

    def __init__(self, world: World, nemesis: Nemesis) -> None:
        self._world = world
        self._nemesis = nemesis
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.idle: set[str] = set()
        self.exceeded: set[str] = set()
        self.looks = 0

    def sessions(self) -> int:
        """Count the sessions of the workers and the reaper now."""
        with self._world.connect() as connection:
            row = connection.execute(
                "select count(*) from pg_stat_activity where application_name = %s", [APPLICATION]
            ).fetchone()
            return int(row[0]) if row else 0

    def _run(self) -> None:
        while not self._ended.is_set():
            with suppress(psycopg.Error), self._world.connect() as connection:
                while not self._ended.wait(EVERY):
                    self._count_the_running(connection)
                    if self.looks % 4 == 0:
                        self._look_for_idle(connection)
            self._ended.wait(EVERY)  # the server may be away

    def _count_the_running(self, connection: psycopg.Connection[Any]) -> None:
        rows = connection.execute(
            "select concurrency_key, count(*) from django_pgjobs_job "
            "where status = 'running' and concurrency_key is not null group by 1"
        ).fetchall()
        self.looks += 1
        for key, count in rows:
            if count > SLOTS.get(key.partition(":")[0], count):
                self.exceeded.add(f"{count} jobs run with the key {key}")

    def _look_for_idle(self, connection: psycopg.Connection[Any]) -> None:
        # What is stopped, slow or silent cannot end its transaction.
        calm = self._nemesis.calm_since
        rows = connection.execute(
            "select pid, query from pg_stat_activity where application_name = %s "
            "and state like 'idle in transaction%%' "
            "and state_change < clock_timestamp() - make_interval(secs => %s)",
            [APPLICATION, LONGEST],
        ).fetchall()
        if calm == self._nemesis.calm_since and time.monotonic() - calm > 2 * LONGEST:
            self.idle |= {f"{pid}: {query[:200]}" for pid, query in rows}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
