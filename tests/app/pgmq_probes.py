"""A consumer for tests with processes of their own: see `PGJOBS_TEST_PGMQ`."""

from __future__ import annotations

from django_pgjobs.pgmq import consumer
from tests.app.probes import hold


@consumer("emails", vt=60, qty=1)
def pass_gate(key: str) -> None:
    """Work until the test opens the gate of this key."""
    hold.handler(key)
