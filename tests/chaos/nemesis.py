"""The one who breaks things, at random and so that it can be repeated: the seed decides all it can.

Invariant: whatever it does ends by itself or by `heal()`, after which the world is as it was.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import psycopg

from tests.chaos.world import APPLICATION, PGJOBS, World, send
from tests.processes import children_of

# What a transaction says whose answer shall be lost, and what the answer then holds.
COMMITS = (
    ("set status = 'running'", "chaos"),  # a claim
    ("set status = 'done'", "UPDATE"),  # a settle of its own
    ("set status = 'pending'", "UPDATE"),  # a failed attempt
    ("set status = 'running'", "{"),  # a claim, or what was settled with it
    ("with mine as", ""),  # a release
    ("set visit", "chaos_"),  # a claim of jobs with limits
    ('SET "next_at"', ""),  # a tick
    ("set heartbeat_at", ""),
    ("set died_at", "UPDATE 1"),  # by a supervisor
    ("from django_pgjobs_record_deaths(", "SELECT 1"),
    ("from django_pgjobs_reap(", "chaos"),
    ("insert into django_pgjobs_worker", ""),
    ("insert into django_pgjobs_job", ""),
    ("pg_notify", ""),
)


class Nemesis:
    """Attacks a world, a step at a time."""

    def __init__(self, world: World, seed: str) -> None:
        self._world = world
        self._chance = random.Random(seed)  # noqa: S311 -- to be repeated, not to be secret
        self._undo: list[tuple[float, Callable[[], None]]] = []
        self.done: Counter[str] = Counter()
        self.calm_since = time.monotonic()  # since when nothing is stopped, slow or silent
        self._attacks: dict[Callable[[], None], int] = {
            self.kill_a_child: 20,
            self.kill_a_supervisor: 6,
            self.kill_a_producer: 3,
            self.kill_a_reaper: 2,
            self.stop_a_child: 8,
            self.stop_a_supervisor: 4,
            self.stop_a_family: 4,
            self.terminate_backends: 10,
            self.restart_the_server: 3,
            self.drop: 8,
            self.delay: 6,
            self.blackhole: 8,
            self.cut_after_commit: 30,
        }

    def attack(self) -> None:
        """Do one thing, and pause a little."""
        attack = self._chance.choices(list(self._attacks), list(self._attacks.values()))[0]
        self._world.note(attack.__name__)
        attack()
        self.done[attack.__name__.replace("_", " ")] += 1
        pause = self._chance.uniform(0, 1.2)
        until = time.monotonic() + pause
        while (now := time.monotonic()) < until:
            self._undo_what_is_due(now)
            time.sleep(0.02)  # not to wait: the pause is the moment of the next attack

    def heal(self) -> None:
        """Undo everything."""
        self._world.note("heal")
        self._undo_what_is_due(float("inf"))
        for proxy in self._world.proxies:
            proxy.heal()

    @property
    def disturbs(self) -> bool:
        """Whether something is stopped, slow or silent."""
        return bool(self._undo)

    def _undo_what_is_due(self, now: float) -> None:
        for entry in [entry for entry in self._undo if entry[0] <= now]:
            entry[1]()
            self._undo.remove(entry)
        if not self._undo and self.calm_since == float("inf"):
            self.calm_since = time.monotonic()
        self._world.revive()

    def _undo_later(self, seconds: float, undo: Callable[[], None]) -> None:
        self.calm_since = float("inf")
        self._undo.append((time.monotonic() + seconds, undo))

    def _name(self, role: str) -> str:
        return self._chance.choice(self._world.named(role))

    def _child(self) -> int | None:
        children = self._world.actors[self._name("supervisor")].children
        at = self._chance.random()
        return sorted(children)[int(at * len(children))] if children else None

    def kill_a_child(self) -> None:
        if pid := self._child():
            self._world.note(f"kill {pid}")
            send(pid, signal.SIGKILL)

    def kill_a_supervisor(self) -> None:
        self._kill(self._name("supervisor"))

    def kill_a_producer(self) -> None:
        self._kill(self._name("producer"))

    def kill_a_reaper(self) -> None:
        self._kill(self._name("reaper"))

    def _kill(self, name: str) -> None:
        self._world.kill(name)
        self._world.start(name)

    def stop_a_child(self) -> None:
        if pid := self._child():
            self._stop([pid])

    def stop_a_supervisor(self) -> None:
        self._stop([self._world.actors[self._name("supervisor")].pid])

    def stop_a_family(self) -> None:
        supervisor = self._world.actors[self._name("supervisor")].pid
        self._stop([supervisor, *children_of(supervisor)])

    def _stop(self, pids: list[int]) -> None:
        self._world.note(f"stop {pids}")
        for pid in pids:
            send(pid, signal.SIGSTOP)
        seconds = self._chance.uniform(0.2, 2.5 * PGJOBS["LEASE"])
        self._undo_later(seconds, lambda: [send(pid, signal.SIGCONT) for pid in pids] and None)

    def terminate_backends(self) -> None:
        share = self._chance.choice((0.1, 0.5, 1.0))
        with suppress(psycopg.Error), self._world.connect() as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where application_name = %s and random() < %s",
                [APPLICATION, share],
            )

    def restart_the_server(self) -> None:
        self._world.server.down("immediate")
        seconds = self._chance.choice((0.0, 0.5, PGJOBS["LEASE"] + 1))
        time.sleep(seconds)  # not to wait: so long it is away
        self._world.server.up()

    def drop(self) -> None:
        self._chance.choice(self._world.proxies).drop()

    def delay(self) -> None:
        proxy = self._chance.choice(self._world.proxies)
        proxy.delay = self._chance.uniform(0.01, 0.3)
        self._undo_later(self._chance.uniform(0.5, 3), proxy.heal)

    def blackhole(self) -> None:
        proxy = self._chance.choice(self._world.proxies)
        proxy.silence(new=self._chance.random() < 0.5)
        self._undo_later(self._chance.uniform(0.5, 3 * PGJOBS["LEASE"]), proxy.heal)

    def cut_after_commit(self) -> None:
        proxy = self._chance.choice(self._world.proxies)
        for _ in range(self._chance.choice((1, 1, 3))):
            proxy.cut_after_commit(*self._chance.choice(COMMITS))
