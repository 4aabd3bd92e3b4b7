"""The demo's view of the database: the rows themselves, read with plain SQL.

Invariant: nothing here goes through Django or django_pgjobs, so it proves what is really stored.
"""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from example_project.processes import DemoError

FINAL = {"done", "failed", "cancelled"}


class JobRow(NamedTuple):
    """What the story tells of a job."""

    id: int
    kind: str
    status: str
    attempts: int
    max_attempts: int
    last_error: str
    errors: list[dict[str, Any]]


class Work(NamedTuple):
    """When a job was at work, and by which rule."""

    kind: str
    status: str
    attempts: int
    email: str | None
    attempted_at: datetime.datetime
    finished_at: datetime.datetime
    tick: datetime.datetime


class Parcel(NamedTuple):
    """A message of the queues of parcels, and where it is."""

    kind: str
    status: str
    attempts: int
    order: int
    returned: bool
    reason: str


class Rows:
    """The tables of one shop, and the changes of its jobs as they happen."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        """Take a connection in autocommit mode: it sees what others commit."""
        self._connection = connection
        self._told: dict[int, tuple[str, int]] = {}

    def jobs(self) -> list[JobRow]:
        """Return all jobs; print those whose status or attempts have changed since the last call."""
        with self._connection.cursor(row_factory=class_row(JobRow)) as cursor:
            cursor.execute(
                "select id, kind, status, attempts, max_attempts, last_error, errors"
                " from django_pgjobs_job order by id"
            )
            jobs = cursor.fetchall()
        for job in jobs:
            if self._told.get(job.id) != (job.status, job.attempts):
                self._told[job.id] = (job.status, job.attempts)
                _tell(job)
        return jobs

    def job(self, kind: str) -> JobRow:
        """Return the first job of a kind, or raise `DemoError`."""
        for job in self.jobs():
            if job.kind == kind:
                return job
        raise DemoError(f"There must be a job of the kind {kind}, got none.")

    def finished(self, kind: str) -> JobRow | None:
        """Return the first job of a kind when it is done or was given up, None before."""
        job = self.job(kind)
        return job if job.status in FINAL else None

    def work(self, kind: str) -> list[Work]:
        """Return the jobs of a kind, telling nothing. The times of one that is not done may be none."""
        with self._connection.cursor(row_factory=class_row(Work)) as cursor:
            cursor.execute(
                "select kind, status, attempts, payload ->> 'email' as email, attempted_at, finished_at,"
                " (meta ->> 'tick')::timestamptz as tick"
                " from django_pgjobs_job where kind = %s order by id",
                [kind],
            )
            return cursor.fetchall()

    def parcels(self) -> list[Parcel]:
        """Return all messages about parcels: waiting, archived, or among the dead letters."""
        tables = {"q_parcels": "waiting", "a_parcels": "archived", "q_parcels_dead": "dead"}
        # Of a dead letter, how often it was read in its queue.
        select = (
            "select 'parcels' as kind, %s as status, coalesce((dead -> 'read_ct')::int, read_ct) as attempts,"
            " (message -> 'order')::int as order, coalesce((message -> 'returned')::bool, false) as returned,"
            " coalesce(dead ->> 'reason', '') as reason"
            " from pgmq.{}, lateral (select headers -> 'x-pgjobs-dead-letter') as letter (dead)"
        )
        query = sql.SQL(" union all ").join(
            sql.SQL(select).format(sql.Identifier(table)) for table in tables
        )
        with self._connection.cursor(row_factory=class_row(Parcel)) as cursor:
            cursor.execute(query, list(tables.values()))
            return cursor.fetchall()

    def parcel_ids_given(self) -> int:
        """Return how many ids of messages PostgreSQL has given out: a rollback gives none back."""
        return int(
            self._value(
                "select coalesce(max(last_value), 0) from pg_sequences"
                " where schemaname = 'pgmq' and sequencename = 'q_parcels_msg_id_seq'"
            )
        )

    def send_return(self, order: int) -> None:
        """Send a message about a parcel that comes back, as a program in any language does."""
        message = "jsonb_build_object('order', %s::int, 'returned', true)"
        self._connection.execute(f"select pgmq.send('parcels', {message})", [order])

    def workers(self) -> int:
        """Return how many workers live."""
        return int(self._value("select count(*) from django_pgjobs_worker where died_at is null"))

    def ids_given(self) -> int:
        """Return how many ids of jobs PostgreSQL has given out: a rollback gives none back."""
        return int(
            self._value(
                "select coalesce(max(last_value), 0) from pg_sequences"
                " where sequencename = 'django_pgjobs_job_id_seq'"
            )
        )

    def orders(self, email: str) -> int:
        """Return how many orders a customer has."""
        return int(self._value("select count(*) from shop_order where email = %s", email))

    def first_order(self) -> int:
        """Return the id of the first order."""
        return int(self._value("select id from shop_order order by id limit 1"))

    def courier_calls(self) -> int:
        """Return how often the courier was called about the first order."""
        return int(self._value("select courier_calls from shop_order order by id limit 1"))

    def _value(self, query: str, *params: str) -> Any:
        row = self._connection.execute(query, params).fetchone()
        return row and row[0]


def _tell(job: JobRow) -> None:
    text = f"     {job.kind:<20}{job.status:<9}attempts {job.attempts} of {job.max_attempts}"
    if job.status in {"pending", "failed"} and job.errors:
        text += f"   {job.errors[-1]['message']}"
    print(text, flush=True)
