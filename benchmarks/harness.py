"""django-pgjobs as one contender among many, for a harness that has an adapter for each.

Link it as `adapters/django_pgjobs.py` there. The harness imports it in a process of its own with BENCH_DSN, a
libpq URL, in the environment, and has a module `handlers` with the bodies of the jobs: noop(i), and
ping(i), which reports its start. Other names here are those that the harness asks for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

_HERE = str(Path(__file__).resolve().parents[1])
sys.path.insert(0, _HERE)
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # for the worker, which is another process
os.environ["BENCHMARK_URL"] = os.environ["BENCH_DSN"]
os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"

import django  # noqa: E402
from django.core.management import call_command  # noqa: E402

django.setup()

from benchmarks.jobs import noop, ping  # noqa: E402

VARIANTS = {"default": {}, "best": {"threads": 8}}
PENDING = "select count(*) from django_pgjobs_job where status in ('pending', 'running')"
SEED = ["django_pgjobs_job", "id=nextval(pg_get_serial_sequence('django_pgjobs_job', 'id'))"]
FINISH = """update django_pgjobs_job set status = 'done', finished_at = now() where id in (
    select id from django_pgjobs_job where status = 'pending' order by id limit {n})"""
_JOBS = {"noop": noop, "ping": ping}


def setup() -> None:
    """Make the tables."""
    call_command("migrate", verbosity=0)


def enqueuer() -> Callable[[str, int], object]:
    """Return what enqueues one job, in a transaction of its own."""
    return lambda name, i: _JOBS[name].enqueue(i=i)


def bulk(n: int) -> None:
    """Enqueue so many no-ops."""
    noop.enqueue_many({"i": i} for i in range(n))


def worker(threads: int | None = None) -> None:
    """Become a worker, which runs until it is killed."""
    options = [] if threads is None else [f"--threads={threads}"]
    os.execv(sys.executable, [sys.executable, "-m", "django", "runjobs", *options])  # noqa: S606
