"""Kinds of the chaos with limits, keys, rates and policies of their own; they do what `chaos` does."""

from __future__ import annotations

import os

from django_pgjobs import Exponential, Limit, Linear, Rate, Unique, job
from tests.app.chaos_probes import work

SLOTS = {"chaos_limited": 2, "chaos_ordered": 1}  # of a lane
PACE = Rate(4, per=1, burst=1)
PERIOD = 4.0  # seconds
UNIQUE = {  # rules, by the name under which the ledger notes what a caller was told
    "start-skip": Unique("topic", until="start"),
    "start-replace": Unique("topic", conflict="replace"),
    "finished-skip": Unique("topic"),
    "finished-replace": Unique("topic", until="finished", conflict="replace"),
    "finished-raise": Unique("topic", conflict="raise"),
    "period-skip": Unique("topic", period=PERIOD),
}


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
