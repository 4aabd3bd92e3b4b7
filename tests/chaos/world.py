"""What the chaos happens to: a server, proxies before it, workers, producers and a reaper."""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import psycopg

from example_project.postgres import EmbeddedPostgres
from tests import audit, faults
from tests.processes import Process, Processes
from tests.proxies import Proxy

PGJOBS = {"LEASE": 2, "HEARTBEAT": 0.5, "POLL": 0.2, "SHUTDOWN_TIMEOUT": 10, "MAX_ATTEMPTS": 60}
SERVER = {"max_connections": "200", "track_commit_timestamp": "on"}
SUPERVISORS, CHILDREN, THREADS, PRODUCERS = 2, 2, 2, 2
SCHEDULES = {2: "all", 3: "latest", 5: "skip"}  # seconds, and what becomes of missed ticks
APPLICATION = "pgjobs-test-process"


class World:
    """Everything that runs. `actors` are by name; one that has ended is started again under it."""

    def __init__(
        self, folder: Path, seed: str = "", *, producers: int = PRODUCERS, **environment: str
    ) -> None:
        self._seed = seed
        self._producers = producers
        environment["PGJOBS_TEST_LOG_FORMAT"] = "%(asctime)s %(levelname)s %(name)s: %(message)s"
        self._environment = environment  # of the actors, beside what all processes get
        self._stack = ExitStack()
        self.server = EmbeddedPostgres(settings=SERVER)  # with fsync: a restart is a crash
        self.folder = folder
        self.actors: dict[str, Process] = {}
        self.ends: Counter[str] = Counter()  # of actors, by themselves
        self._starts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        with self._stack as stack:
            stack.enter_context(self.server)
            self.proxies = [
                stack.enter_context(Proxy(self.server.port)) for _ in range(SUPERVISORS)
            ]
            environment = {
                **os.environ,
                "PGJOBS_TEST_URL": self.server.url,
                "PGJOBS_TEST_LIMITED": "1",
            }
            self.processes = stack.enter_context(Processes(environment, self.folder))
            fault = self.processes._environment.pop(faults.VARIABLE, "")  # not in the migration
            if fault:
                self._environment[faults.VARIABLE] = fault
            migrate = self.processes.start("migrate", "--verbosity", "0")
            if migrate.wait(120):
                sys.exit(f"The tables could not be made: {migrate.output}")
            with self.connect() as connection:
                connection.execute(audit.INSTALL)
            for number in range(SUPERVISORS):
                self.start(f"supervisor-{number}")
            for number in range(self._producers):
                self.start(f"producer-{number}")
            self.start("reaper-0")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def note(self, event: str) -> None:
        """Write into the diary, for whoever has to find out what happened."""
        with (self.folder / "diary").open("a") as diary:
            diary.write(f"{datetime.datetime.now()!s} {event}\n")  # noqa: DTZ005 -- as the logs

    def connect(self) -> psycopg.Connection[Any]:
        """Open a connection of the runner's own, past the proxies."""
        return psycopg.connect(self.server.url, autocommit=True, connect_timeout=10)

    def schedule(self) -> None:
        """Have jobs enqueued by the workers themselves."""
        with self.connect() as connection:
            for seconds, missed in SCHEDULES.items():
                connection.execute(
                    "insert into django_pgjobs_schedule (name, kind, every, missed) values "
                    "(%s, 'chaos_tick', make_interval(secs => %s), %s)",
                    [f"every {seconds} s", seconds, missed],
                )

    def unschedule(self) -> None:
        """Switch the schedules off."""
        with self.connect() as connection:
            connection.execute("update django_pgjobs_schedule set enabled = false, next_at = null")

    def start(self, name: str) -> None:
        """Start an actor, under a name that may have been another's before."""
        role, _, number = name.partition("-")
        port = self.proxies[int(number) % len(self.proxies)].port
        place = json.dumps({"HOST": "127.0.0.1", "PORT": str(port)})
        options: dict[str, Any] = {
            "pgjobs": PGJOBS,
            "PGJOBS_TEST_CONNECTION": place,
            **self._environment,
        }
        self._starts[name] += 1
        arguments = {
            "supervisor": ("runjobs", "--processes", str(CHILDREN), "--threads", str(THREADS)),
            "producer": ("produce", f"{name}-{self._starts[name]}", "--seed", self._seed),
            "reaper": ("reapjobs", "--interval", "0.5"),
        }
        self.actors[name] = actor = self.processes.start(*arguments[role], **options)
        self.note(f"{name} is process {actor.pid}, output-{len(self.processes.started) - 1}")

    def revive(self) -> None:
        """Start again what has ended by itself."""
        for name, actor in self.actors.items():
            if not actor.alive:
                self.ends[f"{name.partition('-')[0]} ended with {actor.wait()}"] += 1
                self.start(name)

    def kill(self, name: str) -> None:
        """SIGKILL one process; what it started may live a moment longer."""
        self.actors[name].signal(signal.SIGKILL)
        self.actors[name].wait()

    def named(self, role: str) -> list[str]:
        """Return the names of the actors in a role."""
        return [name for name in self.actors if name.startswith(role)]

    def stop_producing(self) -> None:
        """End the producers, in order."""
        for name in self.named("producer"):
            actor = self.actors.pop(name)
            actor.signal(signal.SIGTERM)
            actor.wait(30)

    def stop(self) -> dict[str, int]:
        """End everything in order; return the exit statuses."""
        for actor in self.actors.values():
            actor.signal(signal.SIGTERM)
        return {name: actor.wait(40) for name, actor in self.actors.items()}


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
