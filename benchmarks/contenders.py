"""The two that are compared, as processes: each measurement runs in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

LONGEST = 900  # seconds for one request: far more than any needs


class BenchmarkError(Exception):
    """A measurement that means nothing: something did not do what it was measured for."""


@dataclass(frozen=True)
class Contender:
    """One side: the module that answers requests, and where the database has its finished jobs."""

    name: str
    module: str
    due: str  # SQL that queues %(jobs)s no-ops
    history: str  # SQL that adds %(jobs)s jobs which finished long ago
    finished: str  # SQL: (moment, jobs finished then) in order, of jobs done in one attempt

    def ask(self, database: str, verb: str, **arguments: Any) -> dict[str, Any]:
        """Have a fresh process of this contender do something; return its answer."""
        answer = self.run(database, "-m", self.module, verb, json.dumps(arguments))
        found: dict[str, Any] = json.loads(answer.splitlines()[-1])
        return found

    def run(self, database: str, *command: str) -> str:
        """Run Python with this command line on the database; return what it printed."""
        environment = {
            **os.environ,
            "BENCHMARK_URL": database,
            "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
        }
        done = subprocess.run(  # noqa: S603 -- our own modules
            [sys.executable, *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        if done.returncode:
            msg = f"{self.name}: {' '.join(command)} must end with 0, got {done.returncode}."
            raise BenchmarkError(f"{msg}\n{done.stderr[-3000:]}")
        return done.stdout


PRODUCT = Contender(
    name="django-pgjobs",
    module="benchmarks.product",
    due="""insert into django_pgjobs_job (kind, payload)
        select 'noop', jsonb_build_object('i', n) from generate_series(1, %(jobs)s) n""",
    history="""insert into django_pgjobs_job (kind, payload, status, finished_at)
        select 'noop', jsonb_build_object('i', n), 'done', now() - interval '1 day'
        from generate_series(1, %(jobs)s) n""",
    finished="""select finished_at, count(*) from django_pgjobs_job
        where status = 'done' and attempts = 1 and claims = 1 group by 1 order by 1""",
)
RAW = Contender(
    name="raw psycopg",
    module="benchmarks.raw",
    due="""insert into job (kind, payload)
        select 'noop', jsonb_build_object('i', n) from generate_series(1, %(jobs)s) n""",
    history="""insert into job (kind, payload, status, finished_at)
        select 'noop', jsonb_build_object('i', n), 2, now() - interval '1 day'
        from generate_series(1, %(jobs)s) n""",
    finished="""select finished_at, count(*) from job
        where status = 2 and attempts = 1 group by 1 order by 1""",
)
CONTENDERS = (PRODUCT, RAW)
