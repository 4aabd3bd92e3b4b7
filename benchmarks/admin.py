"""admin: how long each page of the admin takes, and how many queries, with many jobs in the table.

Nineteen of twenty jobs are done, over the seven days for which they are kept; the others have failed or
were cancelled; one in a hundred is pending, half of these delayed. There are 20 kinds and 8 queues with
3 priorities each, one of these queues with a limit of its own, workers living and dead, schedules, and the
sums of three days. Of further pending jobs 100,000 have a concurrency key each, or as many as have finished,
and 100,000 one key together. Some of all have unique keys. Of the log of acts there are 100,000 entries.
Nothing is compared: the raw queue has no pages.
"""

# ruff: noqa: S608 -- the SQL is put together from constants

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from benchmarks.contenders import PRODUCT, Contender
from benchmarks.server import Server

CONTENDERS = (PRODUCT,)
KINDS, QUEUES, PRIORITIES, RUNNING, LARGE, KEYED = 20, 8, 3, 200, 100, 100_000
EACH, ONE = "calls", "account"  # queues whose jobs have a key each, and one key together
LIMITED = "q3"  # the queue with a limit of its own
SCHEDULES, ACTS, ACTS_ON_MANY = 300, 100_000, 200
TABLES = ("job", "worker", "figure", "schedule")
JOB, WORKER, FIGURE, SCHEDULE = (f"django_pgjobs_{name}" for name in TABLES)

APP = "/admin/django_pgjobs/"
JOBS = f"{APP}job/"

# What the braces in the addresses below stand for; `last` is the last page of the list.
ROWS = {
    "job": f"select max(id) from {JOB} where status = 'done'",
    "first": f"select min(id) from {JOB} where status = 'done'",
    "failed": f"select max(id) from {JOB} where status = 'failed'",
    "large": f"select max(id) from {JOB} where kind = 'large'",
    "keyed": f"select max(id) from {JOB} where status = 'pending' and concurrency_key is not null",
    "worker": f"select min(id) from {WORKER}",
    "schedule": f"select min(id) from {SCHEDULE} where every is null",
}


def _jobs(**query: Any) -> str:
    return f"{JOBS}?{urlencode(query, safe='{}:')}"


PAGES = {
    "overview": APP,
    "overview, refreshed": f"{JOBS}figures/",
    "queues": f"{APP}queue/",
    "workers": f"{APP}worker/",
    "worker": f"{APP}worker/{{worker}}/change/",
    "jobs": JOBS,
    "jobs, page 2": _jobs(p=2),
    "jobs, last page": _jobs(p="{last}"),
    "jobs, asked for in another order": _jobs(o="-4.1"),
    "running jobs": _jobs(status="running"),
    "done jobs": _jobs(status="done"),
    "done jobs of a week": _jobs(status="done", finished="week"),
    "failed jobs": _jobs(status="failed"),
    "failed jobs of an hour": _jobs(status="failed", finished="hour"),
    "failed jobs, page 2": _jobs(status="failed", p=2),
    "cancelled jobs": _jobs(status="cancelled"),
    "pending jobs": _jobs(status="pending"),
    "pending jobs of a queue": _jobs(status="pending", queue="q1"),
    "pending jobs of a limited queue": _jobs(status="pending", queue=LIMITED),
    "pending jobs with a key each": _jobs(status="pending", queue=EACH),
    "pending jobs with one key": _jobs(status="pending", queue=ONE),
    "pending jobs with one key, last page": _jobs(status="pending", queue=ONE, p=201),
    "pending jobs of a kind": _jobs(status="pending", kind="k1"),
    "jobs of a kind": _jobs(kind="k1"),
    "jobs of an unknown kind": _jobs(kind="unknown"),
    "jobs of a queue": _jobs(queue="q1"),
    "jobs that finished in a day": _jobs(finished="day"),
    "jobs by all four filters": _jobs(status="failed", finished="week", queue="q0", kind="k0"),
    "search for an id": _jobs(q="{job}"),
    "search for an unknown id": _jobs(q=2**62),
    "search for a kind": _jobs(q="k1"),
    "search for a failed kind": _jobs(q="k0", status="failed"),
    "search for a subject": _jobs(q="shop.order:77"),
    "search for a failed subject": _jobs(q="shop.order:77", status="failed"),
    "search for an unknown subject": _jobs(q="shop.order:unknown"),
    "job": f"{JOBS}{{job}}/change/",
    "job with errors": f"{JOBS}{{failed}}/change/",
    "job with 100 kB": f"{JOBS}{{large}}/change/",
    "job with a key": f"{JOBS}{{keyed}}/change/",
    "history of a job": f"{JOBS}{{job}}/history/",
    "history of an old job": f"{JOBS}{{first}}/history/",
    "schedules": f"{APP}schedule/",
    "schedules by name": f"{APP}schedule/?q=schedule+1",
    "schedule": f"{APP}schedule/{{schedule}}/change/",
    "new schedule": f"{APP}schedule/add/",
    "history of a schedule": f"{APP}schedule/{{schedule}}/history/",
}
UNITS = {f"{page}{what}": unit for page in PAGES for what, unit in (("", "ms"), (": queries", ""))}


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"{len(PAGES)} pages of the admin, {options.rows:,} jobs in the table"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Fill a fresh database once, and ask for every page several times."""
    with server.database(contender, 0, 0, *filling(options.rows)) as database:
        told = contender.run(database, "-m", "benchmarks.admin_pages", "measure", "{}")
    found: dict[str, float] = {}
    for page, cost in json.loads(told.splitlines()[-1]).items():
        found[page] = cost["seconds"] * 1e3
        found[f"{page}: queries"] = cost["queries"]
    return found


def filling(rows: int) -> tuple[str, ...]:
    """Return the statements that fill the tables, with so many finished jobs."""
    pending = rows // 100
    names = f"'k' || n % {KINDS}, 'q' || n % {QUEUES}, n % {PRIORITIES}"
    run_at = (
        "statement_timestamp() + case when n % 2 = 0 then 1 else -1 end * n * interval '1 second'"
    )
    trace = "repeat(E'  File \"/app/shop/jobs.py\", line 12, in work\\n', 20)"
    error = f"""jsonb_build_object('attempt', 1, 'error', 'builtins.ValueError', 'message',
        'no stock', 'traceback', {trace}, 'worker', 'web-1:1 #1', 'at', now())"""
    return (
        # The older, the smaller the id, and what ends at one time was settled in one statement.
        f"""insert into {JOB} (kind, queue, priority, payload, status, attempts, claims, created_at,
            run_at, attempted_at, finished_at, last_error, errors, subject_type, subject_id,
            unique_key)
        select 'k' || n % {KINDS}, 'q' || n / {KINDS} % {QUEUES}, n % {PRIORITIES},
            jsonb_build_object('order_id', n, 'email', 'ada@example.com'), job.status, 1, 1,
            ended - interval '2 seconds', ended - interval '2 seconds', ended - interval '1 second',
            ended, case status when 'failed' then 'builtins.ValueError: no stock' else '' end,
            case status when 'failed' then jsonb_build_array({error}) else '[]' end,
            case when n % 10 = 7 then 'shop.order' end, case when n % 10 = 7 then n::text end,
            case when n % 20 = 3 then 'period:' || md5(n::text) end
        from generate_series(1, {rows}) n
        cross join lateral (select case when n % 25 = 0 then 'failed' when n % 100 = 1
            then 'cancelled' else 'done' end as status, statement_timestamp()
            - ({rows} - n / 100 * 100) / {rows}.0 * interval '7 days' as ended) job""",
        f"""insert into {JOB} (kind, queue, priority, run_at, unique_key) select {names}, {run_at},
            case when n % 4 = 0 then 'start:' || md5(n::text) end
        from generate_series(1, {pending}) n""",
        f"""insert into {JOB} (kind, queue, priority, run_at, concurrency_key)
        select 'call', '{EACH}', n % 100, {run_at}, 'call:' || n
        from generate_series(1, {min(KEYED, rows)}) n""",
        f"""insert into {JOB} (kind, queue, priority, run_at, concurrency_key)
        select 'book', '{ONE}', n % {PRIORITIES}, {run_at}, 'account:1'
        from generate_series(1, {KEYED}) n""",
        f"""insert into {JOB} (kind, queue, priority, status, attempts, claims, locked_by, locked_at)
        select {names}, 'running', 1, 1, n % 20 + 1, statement_timestamp()
        from generate_series(1, {RUNNING}) n""",
        f"""insert into {JOB} (kind, status, finished_at, payload)
        select 'large', 'done', statement_timestamp(), jsonb_build_object('text', text)
        from generate_series(1, {LARGE}) n cross join lateral (
            select string_agg(md5(n || ' ' || part), ' ') as text from generate_series(1, 3000) part
        ) job""",
        f"""insert into {WORKER} (host, pid, threads, died_at, death)
        select 'web-' || n % 5, n, 8, case when n > 20 then now() end,
            case when n > 20 then 'signal 9' else '' end
        from generate_series(1, 2000) n""",
        f"""insert into {FIGURE} (minute, queue, kind, done, failed)
        select date_trunc('minute', now()) - n * interval '1 minute', 'q' || k % {QUEUES}, 'k' || k,
            50, n % 3
        from generate_series(0, 3 * 1440) n cross join generate_series(1, {KINDS}) k""",
        f"""insert into {SCHEDULE} (name, kind, cron, every, next_at, from_code)
        select 'schedule ' || n, 'k' || n % {KINDS}, case when n % 2 = 0 then '0 3 * * *' else '' end,
            case when n % 2 = 1 then n * interval '1 minute' end,
            statement_timestamp() + interval '1 day', n % 3 = 0
        from generate_series(1, {SCHEDULES}) n""",
    )


def log(user: int, content_type: int) -> tuple[str, ...]:
    """Return the statements that fill the log of acts on jobs: on one each, and on many."""
    columns = (
        "action_time, user_id, content_type_id, action_flag, object_id, object_repr, change_message"
    )
    return tuple(
        f"""insert into django_admin_log ({columns}) select statement_timestamp()
            - n * interval '{span} seconds', {user}, {content_type}, 2, {what}
        from generate_series(1, {count}) n"""
        for count, span, what in (
            (ACTS, 6, "n::text, 'k1 #' || n, 'retry'"),
            (
                ACTS_ON_MANY,
                3_000,
                "null, '5000 \N{MULTIPLICATION SIGN}', 'retry (kind=k' || n % 5 || ')'",
            ),
        )
    )
