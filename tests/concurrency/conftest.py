"""Fixtures for tests of several sessions at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import audit
from tests.concurrency.hand_session import HandSession


@pytest.fixture
def audited(transactional_db: None) -> Iterator[None]:
    """The audit trigger; at the end every change must have been lawful."""
    with audit.installed():
        yield
        audit.assert_lawful()


@pytest.fixture
def sessions(audited: None) -> Iterator[tuple[HandSession, HandSession]]:
    """Two sessions that the test moves on by hand."""
    with HandSession() as first, HandSession() as second:
        yield first, second
