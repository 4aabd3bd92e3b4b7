"""Fixtures for tests with real processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from example_project.postgres import EmbeddedPostgres
from tests import audit
from tests.processes import Processes

SAFE = {"synchronous_commit": "on"}  # a crash of the server loses nothing


@pytest.fixture
def audited(transactional_db: None) -> Iterator[None]:
    """The audit trigger; at the end every change must have been lawful."""
    with audit.installed():
        yield
        audit.assert_lawful()


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    """A server of the module's own, which may be stopped and crowded."""
    with EmbeddedPostgres(fsync=False, settings=SAFE) as server:
        yield server


@contextmanager
def processes_on(url: str, folder: Path) -> Iterator[Processes]:
    """Give real processes on a server of the test's own, whose tables are there and empty."""
    with Processes({**os.environ, "PGJOBS_TEST_URL": url}, folder) as processes:
        assert processes.start("migrate", "--verbosity", "0").wait(60) == 0
        with psycopg.connect(url, autocommit=True) as session:
            session.execute("truncate django_pgjobs_job, django_pgjobs_worker")
        yield processes
