"""Fixtures for tests with real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import audit


@pytest.fixture
def audited(transactional_db: None) -> Iterator[None]:
    """The audit trigger; at the end every change must have been lawful."""
    with audit.installed():
        yield
        audit.assert_lawful()
