"""The lines for pg_cron that the documentation gives, as they stand there, on a server with pg_cron.

It needs Debian's packages `postgresql-15` and `postgresql-15-cron`, or those of a later version, and is skipped elsewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from example_project.postgres import EmbeddedPostgres
from tests.contract import pages
from tests.processes import ROOT
from tests.waiting import eventually

PAGE = "docs/how-to/plain-sql.md"
CONTROL = max(Path("/usr/share/postgresql").glob("*/extension/pg_cron.control"), default=None)
BINARIES = CONTROL and Path("/usr/lib/postgresql") / CONTROL.parents[1].name / "bin"

pytestmark = [
    pytest.mark.newest,
    pytest.mark.skipif(not CONTROL, reason="no pg_cron in /usr/share/postgresql"),
    pytest.mark.skipif(not find_spec("pgmq"), reason="the page drains a queue of pgmq"),
]

LINE = re.compile(r"select cron\.schedule\('([^']+)', '([^']+)', (.+?)\);\n", re.DOTALL)


def sql_of(*headings: str) -> str:
    """The SQL under these headings of the page, in order."""
    parts = [pages.section(PAGE, heading) for heading in headings]
    blocks = [b.code for b in pages.blocks(PAGE) if b.language in {"sql", "postgresql"}]
    return "\n".join(code for part in parts for code in blocks if code in part)


def lines() -> dict[str, tuple[str, str]]:
    """The command of each line by its name, with the schedule."""
    text = sql_of("Schedule it with pg_cron", "Drain a queue of pgmq")
    return {name: (schedule, command) for name, schedule, command in LINE.findall(text)}


@pytest.fixture(scope="module")
def server():
    settings = {
        "shared_preload_libraries": "pg_cron",
        "cron.database_name": "postgres",
        "cron.host": "127.0.0.1",
    }
    with EmbeddedPostgres(fsync=False, settings=settings, binaries=BINARIES) as started:
        with psycopg.connect(started.url, autocommit=True) as superuser:
            superuser.execute("create role shop login")
            superuser.execute("alter database postgres owner to shop")
            superuser.execute("create extension pg_cron")
            superuser.execute(grant())
        yield started


def grant() -> str:
    """What the page has the superuser run beside `create extension`."""
    [said] = re.findall(r"`(grant usage [^`]+)`", pages.section(PAGE, "Schedule it with pg_cron"))
    return said


@pytest.fixture(scope="module")
def shop(server):
    """The database of the jobs as its owner sees it, migrated, with the functions of the page."""
    url = server.url.replace("//postgres@", "//shop@")
    environment = os.environ | {
        "PGJOBS_TEST_URL": url,
        "DJANGO_SETTINGS_MODULE": "tests.settings_worker",
    }
    environment.pop("PGJOBS_TEST_FAULT", None)
    command = [sys.executable, "-m", "django", "migrate", "-v0"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    with psycopg.connect(url, autocommit=True) as connection:
        archive = sql_of("Archive finished jobs")
        connection.execute(archive[: archive.index("drop function")])
        drain = sql_of("Drain a queue of pgmq")
        connection.execute(drain[: drain.index("select cron.schedule")])
        connection.execute("select pgmq.create('clicks')")
        yield connection


def ask(shop, sql: str) -> list[tuple]:
    return shop.execute(sql).fetchall()


def often(shop) -> str:
    [(version,)] = ask(shop, "select extversion from pg_extension where extname = 'pg_cron'")
    seconds = tuple(map(int, re.findall(r"\d+", version)))[:2] >= (1, 5)
    return "1 second" if seconds else "* * * * *"


def test_the_lines_of_the_page_are_found():
    assert set(lines()) == {
        "pgjobs reap",
        "pgjobs prune",
        "archive jobs",
        "morning report",
        "drain clicks",
    }


def test_the_lines_of_the_page_do_what_it_says(shop):
    ask(
        shop,
        """
        with dead as (
            insert into django_pgjobs_worker (host, pid, threads, heartbeat_at)
            values ('gone', 1, 1, now() - interval '1 hour') returning id
        )
        insert into django_pgjobs_job (kind, status, attempts, claims, locked_at, locked_by)
        select 'lost', 'running', 1, 1, now() - interval '1 hour', id from dead returning id
        """,
    )
    shop.execute(
        "insert into django_pgjobs_job (kind, status, finished_at) values "
        "('archived', 'done', now() - interval '2 days'), "
        "('kept', 'done', now() - interval '1 hour'), "
        "('pruned', 'failed', now() - interval '31 days')"
    )
    for message in ('{"page": "/a"}', '{"page": "/a"}', '{"page": null}', '{"page": "/b"}'):
        shop.execute("select pgmq.send('clicks', %s::jsonb)", [message])
    for name, (_, command) in lines().items():
        # With the schedules of the page the first effect would come tomorrow.
        shop.execute(f"select cron.schedule('{name}', '{often(shop)}', {command})")

    done = """
        select j.jobname from cron.job_run_details d join cron.job j using (jobid)
        where d.status = 'succeeded' group by j.jobname order by j.jobname"""
    expected = sorted((name,) for name in lines())
    failed = "select command, return_message from cron.job_run_details where status = 'failed'"
    try:
        eventually(lambda: ask(shop, done) == expected or ask(shop, failed), within=70)
    finally:
        told = ask(shop, failed)
        for name in lines():
            shop.execute("select cron.unschedule(jobid) from cron.job where jobname = %s", [name])
    assert told == []

    kinds = "select kind, status, attempts from django_pgjobs_job order by kind"
    assert set(ask(shop, kinds)) >= {("kept", "done", 0), ("lost", "pending", 1)}
    [error] = ask(shop, "select errors -> 0 ->> 'error' from django_pgjobs_job where kind = 'lost'")
    assert error == ("WorkerLost",)
    assert ask(shop, "select death from django_pgjobs_worker") == [
        ("no heartbeat for more than 60 s",)
    ]
    assert ask(shop, "select kind from shop_archived_job") == [("archived",)]
    gone = "select kind from django_pgjobs_job where kind in ('archived', 'pruned')"
    assert ask(shop, gone) == []
    key = "select unique_key from django_pgjobs_job where kind = 'send_morning_report'"
    reports = ask(shop, key)
    assert 1 <= len(reports) == len(set(reports))
    assert all(one.startswith("period:morning report 2") for (one,) in reports)
    assert ask(shop, "select * from shop_page order by page") == [("/a", 2), ("/b", 1)]
    assert ask(shop, "select message ->> 'page' from pgmq.a_clicks order by 1") == [
        ("/a",),
        ("/a",),
        ("/b",),
    ]
    assert ask(shop, "select message ->> 'page' from pgmq.q_clicks") == [(None,)]
    [(others,)] = ask(shop, "select count(*) from cron.job")
    assert others == 0


def test_a_message_that_always_fails_is_archived_at_the_fifth_time(shop):
    shop.execute("select pgmq.purge_queue('clicks')")
    shop.execute("""select pgmq.send('clicks', '{"wrong": 1}')""")
    for read in range(1, 6):
        assert ask(shop, "select shop_drain_clicks()") == [(0,)]
        left = ask(shop, "select read_ct from pgmq.q_clicks")
        assert left == ([(read,)] if read < 5 else [])
        shop.execute("select pgmq.set_vt('clicks', msg_id, 0) from pgmq.q_clicks")


def test_a_tick_that_is_inserted_twice_is_one_job(shop):
    _, command = lines()["morning report"]
    shop.execute("delete from django_pgjobs_job")
    insert = command.strip("$ \n")
    with shop.transaction():  # so that both are in the same minute
        shop.execute(insert)
        shop.execute("update django_pgjobs_job set status = 'done', finished_at = now()")
        shop.execute(insert)
    assert ask(shop, "select status from django_pgjobs_job") == [("done",)]
