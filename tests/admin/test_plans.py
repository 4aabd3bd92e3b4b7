"""No page reads the table of jobs, whatever the statistics: each statement ends after a bounded number of rows.

The pages are those that the benchmark `admin` measures, over the same mix of rows. Beside them stand more
jobs of each status than a page may read: far ahead, failed, and ended all at one moment, as a cancel of many
leaves them.
"""

# ruff: noqa: S608 -- the SQL is put together from constants

from __future__ import annotations

import os
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from benchmarks import admin
from django_pgjobs.windows import WINDOW
from tests.db.plans import FIGURE, FORMERLY, JOB, WORKER, parsed, refill

pytestmark = [pytest.mark.newest, pytest.mark.django_db]

FINISHED, MANY = 100_000, 50_000
FILL = ";\n".join(
    (
        f"truncate {admin.SCHEDULE}",
        *admin.filling(FINISHED),
        f"""insert into {JOB} (kind, queue, priority, run_at)
        select 'k' || n % 7, 'q' || n % 2, n % 2 * 10, statement_timestamp() + interval '1 day'
        from generate_series(1, 2 * {MANY}) n""",
        f"""insert into {JOB} (kind, status, finished_at)
        select 'k1', 'cancelled', statement_timestamp() from generate_series(1, {MANY}) n""",
        f"""insert into {JOB} (kind, status, finished_at)
        select 'k1', 'failed', statement_timestamp() - n * interval '1 second'
        from generate_series(1, {MANY}) n""",
    )
)
QUERIES = 10  # at most, of a page
# Each is counted by itself, up to the window; of jobs with keys, the first of each queue.
LANES = 2 * 2 + admin.QUEUES * admin.PRIORITIES + 2


@pytest.fixture(scope="module")
def session(django_db_setup, django_db_blocker):
    """A session of its own on the test database; its changes are undone by hand."""
    with django_db_blocker.unblock():
        name = quote(str(connection.settings_dict["NAME"]))
    url = urlsplit(os.environ["PGJOBS_TEST_URL"])._replace(path=f"/{name}").geturl()
    with psycopg.connect(url, autocommit=True) as session:
        try:
            session.execute(f"alter table {JOB} set (autovacuum_enabled = false)")
            yield session
        finally:
            session.execute(
                f"truncate {JOB}, {WORKER}, {FIGURE}, {admin.SCHEDULE} restart identity"
            )
            session.execute(f"alter table {JOB} reset (autovacuum_enabled)")


@pytest.fixture(scope="module", params=["true", *FORMERLY], ids=lambda of: f"statistics of {of}")
def filled(request, session):
    refill(session, request.param, FILL)


@pytest.fixture
def client(filled, client):
    client.force_login(User.objects.create_superuser("root"))
    return client


def addresses(client) -> dict[str, str]:
    """The pages by their names, each with the ids of rows that exist."""
    with connection.cursor() as cursor:
        named = {name: cursor.execute(sql).fetchone()[0] for name, sql in admin.ROWS.items()}
    named["last"] = client.get(admin.JOBS).context["cl"].paginator.num_pages
    return {page: address.format(**named) for page, address in admin.PAGES.items()}


def asked(client, address):
    """Every statement that makes this page, with its plan if it reads jobs."""
    statements = []

    def note(execute, sql, params, many, context):
        plan = None
        if JOB in sql:
            execute(f"explain (analyze, timing off, format json) {sql}", params, many, context)
            plan = parsed(context["cursor"].fetchone()[0])
        statements.append((sql, plan))
        return execute(sql, params, many, context)

    # As every request it begins with the settings of the server.
    with transaction.atomic(), connection.execute_wrapper(note):
        assert client.get(address).status_code == 200, address
        transaction.set_rollback(True)
    return statements


def test_every_page_asks_little_and_reads_little(client):
    faults = []
    for page, address in addresses(client).items():
        # Savepoints are of the test: a request of its own has no transaction around it.
        statements = [(sql, plan) for sql, plan in asked(client, address) if "SAVEPOINT" not in sql]
        if len(statements) > QUERIES:
            faults.append(f"{page}: {len(statements)} queries")
        for sql, plan in statements:
            if plan:
                faults += [f"{page}: {fault}: {sql}" for fault in costs(plan, bound(sql))]
    assert not faults, "\n".join(faults)


def bound(sql: str) -> int:
    """How many rows a statement may read: those of a window are found, and then looked up."""
    if "recursive" in sql:
        windows = LANES
    elif "UNION ALL" in sql:  # of jobs with a key, and of those without
        windows = 4
    else:
        windows = 2
    return windows * (WINDOW + 1)


def costs(plan, most: int) -> list[str]:
    """Say what takes the longer the more jobs there are."""
    faults = {
        "reads the table from end to end": JOB in plan.seq_scans,
        f"reads {plan.read(JOB)} rows": plan.read(JOB) > most,
        f"sorts {plan.sorted_rows} rows": plan.sorted_rows > most,
    }
    return [fault for fault, is_found in faults.items() if is_found]
