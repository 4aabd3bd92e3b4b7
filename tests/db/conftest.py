"""A second session, for what only another one can see."""

from __future__ import annotations

import psycopg
import pytest

from django_pgjobs.sessions import Session


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
