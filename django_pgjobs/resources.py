"""What this process and its group of processes use, as the operating system says it.

Invariant: where the system does not say, the answer is "unknown" and never a guess.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_LAG = 1.0  # seconds, at least, from a count to the one that a death is compared with


def memory() -> int:
    """Return the resident memory of this process in bytes; its peak where /proc is not there."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


class MemoryKills:
    """How many processes of this control group the kernel killed for want of memory.

    The count says that there was one, not which. So a death is compared with the count of a moment
    before it, and each rise explains one death.
    """

    def __init__(self) -> None:
        """Find the count of this process's group, if there is one."""
        self._file = next((file for file in _counts() if _read(file) is not None), None)
        self._before = self._latest = self._count()
        self._looked = time.monotonic()

    def look(self) -> None:
        """Take note of the count; to be called now and then."""
        if time.monotonic() - self._looked > _LAG:
            self._looked = time.monotonic()
            self._before, self._latest = self._latest, self._count()

    def take(self) -> bool:
        """Say whether the count has risen lately; that rise explains nothing more."""
        if self._before >= self._count():
            return False
        self._before += 1
        self._latest = max(self._before, self._latest)
        return True

    def _count(self) -> int:
        return (_read(self._file) or 0) if self._file else 0


def _counts() -> Iterator[Path]:
    """Yield where the count may be: the group's own file, or the top one of a container's view."""
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):  # version 1
            yield _CGROUPS / "memory" / path.lstrip("/") / "memory.oom_control"
            yield _CGROUPS / "memory" / "memory.oom_control"
        elif not controllers:  # version 2
            yield _CGROUPS / path.lstrip("/") / "memory.events"
            yield _CGROUPS / "memory.events"


def _read(file: Path) -> int | None:
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for name, _, count in (line.partition(" ") for line in lines):
        if name == "oom_kill":
            return int(count)
    return None
