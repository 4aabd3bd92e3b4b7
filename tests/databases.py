"""Which PostgreSQL the tests use: DATABASE_URL, else a container, else the embedded one.

PGJOBS_TEST_DATABASE=url|container|embedded forces one. A container is taken only where an engine has
the image already, for a test run should not wait for a download; forced, it may be pulled.
Invariant: a server that was started here belongs to this run alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from example_project.postgres import EmbeddedPostgres, EmbeddedPostgresError
from tests.containers import IMAGE, ContainerError, start_container

if TYPE_CHECKING:
    from contextlib import ExitStack

CHOICES = ("url", "container", "embedded")
SETTINGS = {
    "max_connections": "200",  # several worker processes with threads
    "track_commit_timestamp": "on",  # tests of order and fairness ask when a row was committed
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
}


@dataclass(frozen=True)
class TestServer:
    """A server that answers, and where it came from."""

    __test__ = False  # not a test class, whatever its name suggests to pytest

    url: str
    description: str


def take_server(stack: ExitStack) -> TestServer:
    """Choose a server and start it if need be; `stack` stops it again."""
    forced = os.environ.get("PGJOBS_TEST_DATABASE", "")
    if forced and forced not in CHOICES:
        msg = f"PGJOBS_TEST_DATABASE must be one of {', '.join(CHOICES)}, got {forced!r}. Correct or unset it."
        raise pytest.UsageError(msg)
    if forced == "url" or (not forced and os.environ.get("DATABASE_URL")):
        return _named_server()
    notice = ""
    if forced != "embedded":
        try:
            url = start_container(stack, SETTINGS, may_pull=bool(forced))
            return _described(url, f"container of {IMAGE}")
        except ContainerError as error:
            if forced:
                msg = f"PGJOBS_TEST_DATABASE=container must get a container, got: {error}."
                raise pytest.UsageError(msg) from error
            notice = f" (no container: {error})"
    return _embedded_server(stack, notice)


def _named_server() -> TestServer:
    url = os.environ.get("DATABASE_URL", "")
    if not url:
        msg = "DATABASE_URL must name a server for PGJOBS_TEST_DATABASE=url, got nothing. Set it."
        raise pytest.UsageError(msg)
    try:
        return _described(url, "named by DATABASE_URL")
    except psycopg.Error as error:
        msg = f"DATABASE_URL must name a PostgreSQL that answers, got: {' '.join(str(error).split())}. Correct or unset it."
        raise pytest.UsageError(msg) from None


def _embedded_server(stack: ExitStack, notice: str) -> TestServer:
    try:
        server = stack.enter_context(EmbeddedPostgres(fsync=False, settings=SETTINGS))
    except EmbeddedPostgresError as error:
        raise pytest.UsageError(str(error)) from error
    return _described(server.url, f"embedded{notice}")


def _described(url: str, origin: str) -> TestServer:
    facts = conninfo_to_dict(url)
    where = f"{facts.get('host', 'local socket')}:{facts.get('port', 5432)}"  # never the password
    with psycopg.connect(url, connect_timeout=10) as connection:
        row = connection.execute("select current_setting('server_version')").fetchone()
    version = str(row[0]) if row else "?"
    return TestServer(url, f"PostgreSQL {version} at {where}, {origin}")
