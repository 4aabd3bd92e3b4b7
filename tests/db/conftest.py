"""A second session, for what only another one can see."""

from __future__ import annotations

import os

import psycopg
import pytest

from django_pgjobs.sessions import Session
from tests import faults


@pytest.fixture
def other_session(database_url):
    """A connection beside Django's own; what it leaves open is rolled back."""
    with psycopg.connect(database_url) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def session(transactional_db):
    """A session as a worker has it: each statement is committed at once."""
    session = Session("default")
    yield session
    session.close()


@pytest.fixture(scope="session", autouse=True)
def planted_fault() -> None:
    if name := os.environ.get(faults.VARIABLE):
        faults.plant(name)
