"""Fixtures for tests with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import audit
from tests.processes import Processes


@pytest.fixture
def processes(process_environment: dict[str, str], tmp_path: Path) -> Iterator[Processes]:
    """Real processes on the test database, which end with the test."""
    with Processes(process_environment, tmp_path) as started:
        yield started


@pytest.fixture
def audited(transactional_db: None) -> Iterator[None]:
    """The audit trigger; at the end every change must have been lawful."""
    with audit.installed():
        yield
        audit.assert_lawful()
