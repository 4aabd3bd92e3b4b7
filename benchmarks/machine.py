"""What a figure belongs to: the machine, the versions, the load."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psycopg


def facts() -> dict[str, Any]:
    """Return what must be known to read a figure."""
    return {
        "machine": {
            "cores": cores(),
            "cpu": _cpu_model(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
        "versions": {
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "django-pgjobs": _version("django-pgjobs"),
            "django": _version("django"),
            "psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})",
        },
    }


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load() -> float:
    """Return the load average of the last minute; that of the benchmark itself is in it."""
    return round(os.getloadavg()[0], 2)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"  # run from the sources


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")
