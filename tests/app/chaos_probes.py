"""What the jobs of the chaos do."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time

from django.contrib.auth.models import Group
from django.db import transaction

from django_pgjobs import Snooze, job
from tests import ledger

STUMBLES = 0.3  # how often a body of that fate raises


@job
def chaos(key: str, seconds: float, fate: str = "works") -> dict[str, int]:
    """Work for a while, and end as it is said."""
    return work(key, seconds, fate)


def work(key: str, seconds: float, fate: str) -> dict[str, int]:
    """Do that, and note it."""
    ledger.note("start", key)
    try:
        _work(key, seconds, fate)
    except BaseException:
        ledger.note("raise", key)
        raise
    ledger.note("end", key)
    return {"pid": os.getpid()}


@job
async def achaos(key: str, seconds: float, fate: str = "works") -> dict[str, int]:
    """Work for a while, on the event loop; there is one fate only."""
    assert fate == "works"
    ledger.note("start", key)
    try:
        await asyncio.sleep(seconds)
    except BaseException:
        ledger.note("raise", key)
        raise
    ledger.note("end", key)
    return {"pid": os.getpid()}


def _work(key: str, seconds: float, fate: str) -> None:
    time.sleep(seconds)
    if fate == "enqueues":
        enqueue_another(f"{key.rpartition('.')[0]}-next")
    if fate == "kills":
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    if fate == "snoozes" and random.random() < STUMBLES:  # noqa: S311
        raise Snooze(0.1)
    if fate == "fails" or (fate == "stumbles" and random.random() < STUMBLES):  # noqa: S311
        raise ValueError(key)


def enqueue_another(key: str) -> None:
    """Enqueue a job beside a row of business, in one transaction, unless that is done already."""
    if Group.objects.filter(name=key).exists():
        return
    ledger.note("meant-1", key)
    with transaction.atomic():
        Group.objects.create(name=key)
        chaos.enqueue(key=f"{key}.0", seconds=0)
    ledger.note("committed", key)
