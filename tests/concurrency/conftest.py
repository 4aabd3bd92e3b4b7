"""Fixtures for tests of several sessions at once."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests import audit, faults
from tests.concurrency.hand_session import HandSession


@pytest.fixture(scope="session", autouse=True)
def planted_fault() -> None:
    if name := os.environ.get(faults.VARIABLE):
        faults.plant(name)


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
