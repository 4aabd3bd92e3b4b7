"""The probe handlers of the tests."""

from __future__ import annotations

import os

from django_pgjobs import job
from tests.app import (  # noqa: F401 -- they register handlers
    asking_probes,
    async_probes,
    chaos_probes,
    connection_probes,
    context_probes,
    probes,
    timed_probes,
)

if os.environ.get("PGJOBS_TEST_LIMITED"):
    from tests.app import limited_probes  # noqa: F401 -- likewise
if os.environ.get("PGJOBS_TEST_PGMQ"):
    from tests.app import pgmq_probes  # noqa: F401 -- likewise


@job
def noop(i: int = 0) -> None:
    """Do nothing."""


@job
def add(a: int, b: int = 0) -> int:
    """Return a sum."""
    return a + b


@job
def boom(message: str = "boom") -> None:
    """Fail."""
    raise ValueError(message)


@job
async def anoop(i: int = 0) -> None:
    """Do nothing, asynchronously."""
