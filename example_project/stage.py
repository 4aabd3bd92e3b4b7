"""Where the example plays: a PostgreSQL, a fresh database in it, and the shop's web server.

Invariant: everything is made for this one run and ends with it, so that runs never meet.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from example_project.postgres import EmbeddedPostgres
from example_project.processes import DemoError, Process, Processes

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = "example_project.settings"
STAFF = "staff"


@dataclass(frozen=True)
class Stage:
    """The running shop, still without a worker."""

    database_url: str
    processes: Processes
    web: Process
    site: str
    password: str  # of `STAFF`, in the admin


@contextmanager
def set_up(**environment: str) -> Iterator[Stage]:
    """Start the shop, telling each step; end and delete everything afterwards.

    `environment` goes to its processes.
    """
    with _server() as server_url, _fresh_database(server_url) as database_url:
        own = {"DATABASE_URL": database_url, "DJANGO_SETTINGS_MODULE": SETTINGS}
        with Processes({**os.environ, "PYTHONUNBUFFERED": "1", **own, **environment}) as processes:
            print("  its tables     manage.py migrate", flush=True)
            processes.run("migrate", "migrate", "--verbosity=1")
            password = secrets.token_urlsafe(9)
            name = "createsuperuser"
            processes.run(
                name,
                *(name, "--noinput", "--username", STAFF, "--email", "staff@example.com"),
                DJANGO_SUPERUSER_PASSWORD=password,
            )
            web = processes.start("web server", "runserver", "--noreload", "127.0.0.1:0")
            site = processes.wait_for("the web server is ready", lambda: _address(web))
            print(f"  a web server   manage.py runserver: {site}", flush=True)
            yield Stage(database_url, processes, web, site, password)


@contextmanager
def _server() -> Iterator[str]:
    if url := os.environ.get("DATABASE_URL"):
        print("  a PostgreSQL   the one that DATABASE_URL names", flush=True)
        yield url
        return
    for variable in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[variable]  # libpq's own: they speak of some other server
    with EmbeddedPostgres() as server:
        print(f"  a PostgreSQL   embedded, for this run only, on port {server.port}", flush=True)
        yield server.url


@contextmanager
def _fresh_database(server_url: str) -> Iterator[str]:
    """Create a database for this run; only a SIGKILL can leave it behind on a named server."""
    name = f"pgjobs_demo_{secrets.token_hex(4)}"
    try:
        _execute(server_url, "create database {}", name)
    except psycopg.Error as error:
        raise DemoError(
            f"The server must let us create a database, got: {' '.join(str(error).split())}. "
            "Correct DATABASE_URL, or unset it to use the embedded PostgreSQL."
        ) from None
    print(f"  a database     {name}", flush=True)
    try:
        yield urlsplit(server_url)._replace(path=f"/{name}").geturl()
    finally:
        try:
            _execute(server_url, "drop database {} with (force)", name)
        except psycopg.Error as error:  # the reason why we are here matters more
            print(f"The database {name} could not be dropped: {error}", file=sys.stderr)


def _execute(url: str, statement: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))


def _address(web: Process) -> str | None:
    found = re.search(r"http://127\.0\.0\.1:\d+/", web.output())
    return found and found.group()
