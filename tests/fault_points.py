"""Points of the product at which a test can let a process fail, planted from outside.

A point is a function of the product, with its two sides, before and after. Nothing in the
product knows of them: the wrapper is put around the function by a test's process alone, so there is
nothing to switch off, and nothing that a hot path could pay for.

A test arms a point with some actions; each then happens once, in whatever process comes by first.
"""

from __future__ import annotations

import functools
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.utils.module_loading import import_string

from tests import ledger

VARIABLE = "PGJOBS_TEST_FAULT_POINTS"  # the folder of the armed ones
PACKAGE = "django_pgjobs"
POINTS = {
    "connect": "sessions.connect",
    "spawn": "children.Child.start",
    "register": "leases.Lease.register",
    "introduce": "children.Child.introduce",
    "claim": "claims.Claimer.settle_and_claim",
    "start": "attempts.Runner._begin",
    "handler": "execution.run",
    "end": "attempts.Runner._end",
    "settle": "outcomes.settle",
    "release": "claims.release",
    "orphans": "claims.release_orphans",
    "heartbeat": "leases.renew",
    "death": "children.Child.record_death",
    "deaths": "reaper._record_deaths",
    "reap": "reaper._reap",
    "prune": "reaper._prune",
    "enqueue": "enqueueing.insert",
    "wake-up": "notify._send",
    "tick": "schedules._enqueue",
}
SIDES = ("before", "after")
ASLEEP = 3.0  # seconds: longer than the lease of such tests


class FaultPoint(Exception):
    """What a process meets that nobody has thought of."""


def _raise() -> None:
    raise FaultPoint


def _sleep() -> None:
    time.sleep(ASLEEP)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def _drop() -> None:
    """Break every connection of this process."""
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if str(link.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(link.name))) as peer:
                    if peer.family == socket.AF_INET:
                        peer.shutdown(socket.SHUT_RDWR)


ACTIONS: dict[str, Callable[[], None]] = {
    "raise": _raise,
    "sleep": _sleep,
    "kill": _kill,
    "drop": _drop,
}


class Armed:
    """The points that a test has armed, as files in a folder that its processes see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def arm(self, point: str) -> list[str]:
        """Arm both sides of a point with every action; return what will happen."""
        names = [f"{side}-{point}={action}" for side in SIDES for action in ACTIONS]
        for name in names:
            (self.folder / name).touch()
        return names

    @property
    def waiting(self) -> list[str]:
        """What has not happened yet."""
        return sorted(file.name for file in self.folder.iterdir())

    def pass_by(self, side: str, point: str) -> None:
        """Do what is armed here and has not happened, one action at a time."""
        for action, do in ACTIONS.items():
            name = f"{side}-{point}={action}"
            with suppress(FileNotFoundError):
                (self.folder / name).unlink()  # for one process: the others fail
                ledger.note(name, os.getpid())
                do()
                return


class Planted(AppConfig):
    """An app that puts the points into the product as it is loaded."""

    name = "tests.fault_points"

    def ready(self) -> None:
        armed = Armed(Path(os.environ[VARIABLE]))
        for point, place in POINTS.items():
            _wrap(point, place, armed)


def _wrap(point: str, place: str, armed: Armed) -> None:
    path, _, attribute = f"{PACKAGE}.{place}".rpartition(".")
    owner = import_string(path) if path.count(".") > 1 else __import__(path, fromlist=["_"])
    real = vars(owner)[attribute]
    function = real.__func__ if isinstance(real, classmethod) else real

    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        armed.pass_by("before", point)
        value = function(*arguments, **options)
        armed.pass_by("after", point)
        return value

    setattr(owner, attribute, classmethod(wrapped) if isinstance(real, classmethod) else wrapped)
