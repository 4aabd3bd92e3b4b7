"""Kinds with limits: where `PGJOBS_TEST_LIMITED` is set alone, since no queue that has one is claimed by transaction.

Those of the chaos have policies of their own too, and do what `chaos` does.
"""

from __future__ import annotations

import os

from django_pgjobs import Exponential, Limit, Linear, job
from tests.app.async_probes import nap
from tests.app.chaos_probes import work
from tests.app.mixed_rules import PACE, SLOTS
from tests.app.probes import hold, record


@job(concurrency=Limit(SLOTS["chaos_limited"], key="lane"), retry=Linear(step=0.2))
def chaos_limited(key: str, seconds: float, fate: str, lane: int) -> dict[str, int]:
    """Work beside one other of the lane."""
    return work(key, seconds, fate)


@job(concurrency=Limit(1, key="lane"), ordered=True, retry=[0.1, 0.3])
def chaos_ordered(key: str, seconds: float, fate: str, lane: int) -> dict[str, int]:
    """Work after the ones before it."""
    return work(key, seconds, fate)


@job(rate=PACE, retry=lambda attempt, _: 0.2 * attempt)
def chaos_paced(key: str, seconds: float, fate: str) -> dict[str, int]:
    """Work when it is time."""
    return work(key, seconds, fate)


@job(retry=Exponential(base=1.5, cap=2))
def chaos_once(key: str, seconds: float, fate: str, topic: int) -> dict[str, int]:
    """Work for all who asked for it."""
    return work(key, seconds, fate)


@job
def chaos_tick() -> dict[str, int]:
    """Do nothing at a tick. It cannot say which in the ledger."""
    return {"pid": os.getpid()}


@job(concurrency=Limit(3))
def hold_at_most_three(key: str) -> None:
    """Work until the test opens the gate of this key, three at a time."""
    hold.handler(key)


@job(concurrency=Limit(2))
def record_at_most_two(key: str) -> None:
    """Do nothing, in a thread."""
    record.handler(key)


@job(concurrency=Limit(2))
async def nap_at_most_two(key: str) -> None:
    """Do nothing, on the loop."""
    await nap.handler(key)
