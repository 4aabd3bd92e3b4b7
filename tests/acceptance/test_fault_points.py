"""Whatever a process is doing when it fails, the others go on, and every job ends as promised.

Two supervisors with two workers each, and a reaper, are at work all the time. Each test arms both
sides of a point with every action, keeps the work coming until all have happened, and then asks for what
must be true of any history.
"""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Iterator

import pytest
from psycopg.types.json import Jsonb

from tests import fault_points, ledger
from tests.chaos import history, invariants
from tests.chaos.world import World, send
from tests.fault_points import Armed
from tests.waiting import eventually

BY_DEATHS = ("spawn", "register", "introduce", "death", "connect")  # passed when a worker has died
ENOUGH = 30  # jobs
numbers = itertools.count()
pytestmark = pytest.mark.world


@pytest.fixture(scope="module")
def armed(tmp_path_factory) -> Armed:
    return Armed(tmp_path_factory.mktemp("armed"))


@pytest.fixture(scope="module")
def world(armed, tmp_path_factory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    variables = {fault_points.VARIABLE: str(armed.folder)}
    with World(folder, producers=0, **variables) as world, pytest.MonkeyPatch.context() as patch:
        patch.setenv(ledger.VARIABLE, str(world.processes.ledger.path))
        yield world
        assert set(world.stop().values()) <= {0, 1}


def enqueue(world: World) -> None:
    """Enqueue some short jobs, some that hold others up, some that enqueue, some async ones."""
    with world.connect() as connection:
        for n in range(30):
            key = f"business-{next(numbers)}"
            payload = {"key": f"{key}.0", "seconds": 0.0 if n % 6 else 0.3}
            payload["fate"] = "enqueues" if n % 10 == 0 else "works"
            ledger.note("meant-1", key)
            with connection.transaction():
                connection.execute("insert into auth_group (name) values (%s)", [key])
                connection.execute(
                    "insert into django_pgjobs_job (kind, payload, max_attempts) "
                    "values (%s, %s, 60)",
                    ["achaos" if n % 10 == 5 else "chaos", Jsonb(payload)],
                )
            ledger.note("committed", key)


def left(world: World) -> int:
    """Say how many jobs are left to do; what waits for its next attempt is made due."""
    world.revive()
    with world.connect() as connection:
        connection.execute(
            "update django_pgjobs_job set status = 'pending', run_at = statement_timestamp() "
            "where status = 'pending' and run_at > statement_timestamp()"
        )
        row = connection.execute(
            "select count(*) from django_pgjobs_job where status in ('pending', 'running')"
        ).fetchone()
        return int(row[0]) if row else 0


@pytest.mark.parametrize("point", fault_points.POINTS)
def test_a_process_that_fails_here_breaks_no_promise(world, armed, point):
    faults = armed.arm(point)
    if point == "tick":
        world.schedule()

    def happened() -> bool:
        if left(world) < ENOUGH:
            enqueue(world)
        children = [pid for actor in world.actors.values() for pid in actor.children]
        if point in BY_DEATHS and children and random.random() < 0.1:  # noqa: S311
            send(random.choice(children), signal.SIGKILL)  # noqa: S311
        return not armed.waiting

    eventually(happened, within=60)
    world.unschedule()
    eventually(lambda: not left(world), within=40)
    with world.connect() as connection:
        seen = history.read(connection, world.processes.ledger)
    assert invariants.violations(seen) == []
    assert {entry.event for entry in world.processes.ledger.entries()} >= set(faults)
    assert not [end for end in world.ends if end.endswith(" 0")], "what gives up says so"
