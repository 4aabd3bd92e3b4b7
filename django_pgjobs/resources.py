"""What this process and its group of processes use, as the operating system says it.

Invariant: where the system does not say, the answer is "unknown" and never a guess.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path


def memory() -> int:
    """Return the resident memory of this process in bytes; its peak where /proc is not there."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def oom_kills() -> int | None:
    """Return how many processes of this control group the kernel killed for want of memory."""
    for file in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            lines = Path(file).read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        for name, _, count in (line.partition(" ") for line in lines):
            if name == "oom_kill":
                return int(count)
    return None
