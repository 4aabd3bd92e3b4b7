"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from django.db import connection

from django_pgjobs import registry
from django_pgjobs.job_types import JobType
from tests import faults
from tests.processes import Processes


@pytest.fixture(scope="session", autouse=True)
def planted_fault() -> None:
    """Break the product, if the environment says how: see `tests.faults`."""
    if name := os.environ.get(faults.VARIABLE):
        faults.plant(name)


@pytest.fixture
def database_url(transactional_db: None) -> str:
    """The test database, for connections and processes beside Django's own."""
    name = quote(str(connection.settings_dict["NAME"]))
    return urlsplit(os.environ["PGJOBS_TEST_URL"])._replace(path=f"/{name}").geturl()


@pytest.fixture
def process_environment(database_url: str) -> dict[str, str]:
    """The environment of a `manage.py` process that works on the test database."""
    return {
        **os.environ,
        "PGJOBS_TEST_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
    }


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> dict[str, JobType]:
    """The table of kinds, for a test that declares some: they are forgotten at its end."""
    monkeypatch.setattr(registry, "_kinds", dict(registry._kinds))
    return registry._kinds


@pytest.fixture
def processes(process_environment: dict[str, str], tmp_path: Path) -> Iterator[Processes]:
    """Real processes on the test database, which end with the test."""
    with Processes(process_environment, tmp_path) as started:
        yield started
