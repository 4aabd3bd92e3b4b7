"""memory: whether a worker grows. No-ops, and jobs that each read 1 MB from the database.

The growth is that of the whole family of processes, from a quarter of the jobs to the last one. Linux only.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

from benchmarks.contenders import PRODUCT, Contender
from benchmarks.server import Server

UNITS = {
    "no-ops, growth": "MB per 50,000",
    "readers, growth": "MB per 50,000",
    "largest": "MB",
}


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"{options.noops:,} no-ops, then {options.readers:,} jobs that read 1 MB each"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Watch a worker on a fresh database for each kind of job."""
    found: dict[str, float] = {}
    table = "django_pgjobs_job" if contender is PRODUCT else "job"
    for name, kind, jobs in (
        ("no-ops", "noop", options.noops),
        ("readers", "read", options.readers),
    ):
        rename = f"update {table} set kind = '{kind}'"  # noqa: S608 -- of constants
        with server.database(contender, jobs, 0, rename) as database:
            answer = contender.ask(database, "memory", jobs=jobs, threads=options.threads)
        found[f"{name}, growth"] = answer["growth"] / jobs * 50_000
        found["largest"] = max(found.get("largest", 0.0), answer["largest"])
    return found
