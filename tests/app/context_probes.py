"""Probe handlers with a context, and others that a cancel may find at work."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path

from django.contrib.auth.models import Group

from django_pgjobs import JobContext, job
from tests import ledger


def _work(context: JobContext, key: str) -> None:
    ledger.note("start", key)
    gate = Path(os.environ["PGJOBS_TEST_FOLDER"]) / f"gate-{key}"
    until = time.monotonic() + 60
    while not gate.exists() and time.monotonic() < until:
        if context.cancelled:
            ledger.note("stopped", key)
            context.check()
        time.sleep(0.01)
    ledger.note("end", key)


@job(takes_context=True)
def work(context: JobContext, key: str) -> None:
    """Work until the test opens the gate of this key, or the job is to stop."""
    _work(context, key)


@job(takes_context=True, atomic=True)
def work_atomically(context: JobContext, key: str) -> None:
    """As above, in one transaction with the settle, of which a row is part."""
    Group.objects.create(name=key)
    _work(context, key)


@job(takes_context=True, timeout=2, max_attempts=3)
def work_too_long(context: JobContext, key: str) -> None:
    """Hear the request, and go on."""
    ledger.note("start", key)
    heard = False
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if context.cancelled and not heard:
            heard = True
            ledger.note("heard", key)
        time.sleep(0.01)


@job
async def atidy(key: str) -> None:
    """Wait for ever; once cancelled, take a while to tidy up."""
    ledger.note("start", key)
    try:
        await asyncio.sleep(3_600)
    finally:
        await asyncio.sleep(0.3)
        ledger.note("tidied", key)


@job
async def arefuse(key: str) -> str:
    """Go on after having been cancelled."""
    ledger.note("start", key)
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(3_600)
    return "all the same"


@job(takes_context=True)
def tell_steps(context: JobContext, key: str, steps: int, seconds: float) -> None:
    """Tell of each step."""
    ledger.note("start", key)
    for step in range(1, steps + 1):
        context.progress(step / steps, f"{step} of {steps}")
        time.sleep(seconds)
    ledger.note("end", key)
