"""A PostgreSQL in a Docker container, for the tests.

Invariant: what was started is removed by the caller's ExitStack, and nothing is pulled unless allowed.
"""

from __future__ import annotations

import gc
import time
import warnings
from typing import TYPE_CHECKING

import psycopg
from docker.errors import DockerException, ImageNotFound
from psycopg import sql
from testcontainers.community.postgres import PostgresContainer
from testcontainers.core.config import testcontainers_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

IMAGE = "postgres:18"
START_SECONDS = 60


class ContainerError(Exception):
    """No container can be had; the message says why, in one line."""


def start_container(stack: ExitStack, settings: Mapping[str, str], *, may_pull: bool) -> str:
    """Start a server of one's own and return its URL; `stack` removes it."""
    testcontainers_config.ryuk_disabled = True  # the reaper is one more image that would be pulled
    container = _ask_for_engine()
    if container is None:
        with (
            warnings.catch_warnings()
        ):  # docker's client forgets the socket that it could not connect
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        msg = "no Docker engine answers"
        raise ContainerError(msg)
    stack.callback(container.stop)
    try:
        if not may_pull:
            container.get_docker_client().client.images.get(IMAGE)
        if _is_local(container):
            container.ports["5432"] = ("127.0.0.1", 0)  # else Docker listens on every interface
        container.start()
        _configure(container, settings)
        return _url(container)
    except ImageNotFound:
        msg = f"the Docker engine has no image {IMAGE}"
        raise ContainerError(msg) from None
    except Exception as error:
        # Docker, testcontainers and psycopg share no error class, and each of them may refuse.
        raise ContainerError(" ".join(str(error).split())) from error


def _ask_for_engine() -> PostgresContainer | None:
    try:
        return _Postgres(IMAGE, username="postgres", dbname="postgres", driver=None)
    except (DockerException, OSError):
        return None


def _is_local(container: PostgresContainer) -> bool:
    return container.get_docker_client().host() == "localhost"


def _url(container: PostgresContainer) -> str:
    # Not `localhost`: that may be ::1 first, where nobody listens.
    return container.get_connection_url(host="127.0.0.1" if _is_local(container) else None)


class _Postgres(PostgresContainer):
    """Ready when it answers to us; testcontainers asks `psql` inside, and goes on if it ended."""

    def _connect(self) -> None:
        wait_until_ready(self)


def wait_until_ready(container: PostgresContainer) -> None:
    """Return when a connection can be made; raise as soon as the container has ended."""
    docker_container = container.get_wrapped_container()
    deadline = time.monotonic() + START_SECONDS
    while True:
        docker_container.reload()
        if docker_container.status == "exited":
            last_words = docker_container.logs(tail=1).decode(errors="replace").strip()
            msg = f"the container of {IMAGE} ended: {last_words or 'no word why'}"
            raise ContainerError(msg)
        try:
            psycopg.connect(_url(container), connect_timeout=5).close()
        except psycopg.OperationalError as error:
            if time.monotonic() > deadline:
                msg = f"the container of {IMAGE} did not answer within {START_SECONDS} s: {error}"
                raise ContainerError(msg) from error
            time.sleep(0.1)
        else:
            return


def _configure(container: PostgresContainer, settings: Mapping[str, str]) -> None:
    """Apply server settings by SQL and a restart: the one way that every image understands."""
    with psycopg.connect(_url(container), autocommit=True) as connection:
        for name, value in settings.items():
            statement = sql.SQL("alter system set {} = {}")
            connection.execute(statement.format(sql.Identifier(name), sql.Literal(value)))
    container.get_wrapped_container().restart()
    wait_until_ready(container)
