"""poison: short jobs for two worker processes, with and without one job that kills its process.

That one has five attempts, with a pause of half a second before each, so up to five deaths. Compared with
nothing: the raw queue would die of it for good.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import LiteralString

import psycopg

from benchmarks.contenders import PRODUCT, BenchmarkError, Contender
from benchmarks.server import Server

CONTENDERS = (PRODUCT,)
UNITS = {"clean": "jobs/s", "poisoned": "jobs/s", "poisoned of clean": "%", "deaths": ""}
MOST = 5  # attempts, thus deaths
NAPS = """insert into django_pgjobs_job (kind, payload)
    select 'nap', jsonb_build_object('i', n) from generate_series(1, %(jobs)s) n"""
POISON = (
    "insert into django_pgjobs_job (kind, priority, max_attempts) values ('poison', 1, %(most)s)"
)
# Until 95 of 100 are done: who ran beside it is tried again after a pause, when the others are through.
RATE = """select 0.95 * count(*) / extract(epoch from
        percentile_disc(0.95) within group (order by finished_at) - min(finished_at))
    from django_pgjobs_job where kind = 'nap' and status = 'done'"""
DEATHS = "select coalesce(sum(attempts), 0) from django_pgjobs_job where kind = 'poison'"
FAILED = "select count(*) from django_pgjobs_job where kind = 'nap' and status = 'failed'"


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"{options.naps:,} jobs of 10 ms, two worker processes, one job that kills its process"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Drain without it, and with it."""
    clean, _ = _drained(contender, server, options)
    poisoned, deaths = _drained(contender, server, options, POISON)
    if not 0 < deaths <= MOST:
        raise BenchmarkError(f"The job that kills must cost up to {MOST} processes, got {deaths}.")
    return {
        "clean": clean,
        "poisoned": poisoned,
        "poisoned of clean": poisoned / clean * 100,
        "deaths": deaths,
    }


def _drained(
    contender: Contender, server: Server, options: Namespace, poison: LiteralString = ""
) -> tuple[float, int]:
    """Return the jobs done in a second, and how many processes died of the poison."""
    with server.database(contender) as database:
        with psycopg.connect(database) as connection:
            connection.execute(NAPS, {"jobs": options.naps})
            if poison:
                connection.execute(poison, {"most": MOST})
        threads = str(options.threads)
        contender.run(
            database, "-m", "django", "runjobs", "--drain", "--processes=2", "--threads", threads
        )
        with psycopg.connect(database) as connection:
            failed, rate, deaths = (
                value for sql in (FAILED, RATE, DEATHS) for (value,) in connection.execute(sql)
            )
    if failed:  # some may wait for another attempt still
        raise BenchmarkError(f"No other job must fail, got {failed} that did.")
    return float(rate), int(deaths)
