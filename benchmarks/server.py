"""The server of a run, and a fresh database for each measurement.

DATABASE_URL names the server, else the embedded one is started: with its own defaults, so fsync,
synchronous_commit and full_page_writes are on. Invariant: no measurement sees the rows, bloat or
pending checkpoint of another.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from benchmarks.contenders import Contender
from example_project.postgres import EmbeddedPostgres

SHOWN = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
    "max_connections",
    "autovacuum",
    "jit",
)


class Server:
    """A running server on which databases can be made."""

    def __init__(self, url: str, contenders: Iterable[Contender]) -> None:
        """Make a template for each contender, with its tables and no rows."""
        self._url = url
        self._prefix = f"benchmark_{secrets.token_hex(4)}"
        self._templates = {
            c.name: f"{self._prefix}_{c.module.rpartition('.')[2]}" for c in contenders
        }
        for contender in contenders:
            template = self._templates[contender.name]
            self._order("create database {}", template)
            contender.ask(self._named(template), "setup")

    def drop(self) -> None:
        """Remove the templates."""
        for template in self._templates.values():
            self._order("drop database if exists {} with (force)", template)

    @contextmanager
    def database(
        self, contender: Contender, jobs: int = 0, history: int = 0, *more: LiteralString
    ) -> Iterator[str]:
        """Give a fresh database, with so many jobs due, finished, and of `more`; drop it afterwards."""
        name = f"{self._prefix}_run"
        self._order("create database {} template {}", name, self._templates[contender.name])
        try:
            url = self._named(name)
            with psycopg.connect(url, autocommit=True) as connection:
                for count, statement in (history, contender.history), (jobs, contender.due):
                    if count:
                        connection.execute(statement, {"jobs": count})
                for statement in more:
                    connection.execute(statement)
                connection.execute("vacuum analyze")
                connection.execute("checkpoint")
            yield url
        finally:
            self._order("drop database {} with (force)", name)

    def facts(self) -> dict[str, Any]:
        """Return version and settings, as the server says them."""
        with psycopg.connect(self._url) as connection:
            query = "select name, current_setting(name) from pg_settings where name = any(%s)"
            settings: dict[str, str] = dict(connection.execute(query, [list(SHOWN)]).fetchall())
            version = connection.execute("select version()").fetchall()[0][0]
        return {"version": version, "settings": settings}

    def _named(self, database: str) -> str:
        return make_conninfo(self._url, dbname=database)

    def _order(self, order: LiteralString, *names: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(SQL(order).format(*map(Identifier, names)))


@contextmanager
def running_server(contenders: Iterable[Contender]) -> Iterator[Server]:
    """Start the embedded server, unless DATABASE_URL names one, and clean up at the end."""
    named = os.environ.get("DATABASE_URL")
    if named:
        yield from _prepared(named, contenders)
        return
    with EmbeddedPostgres() as embedded:
        yield from _prepared(embedded.url, contenders)


def _prepared(url: str, contenders: Iterable[Contender]) -> Iterator[Server]:
    server = Server(url, contenders)
    try:
        yield server
    finally:
        server.drop()
