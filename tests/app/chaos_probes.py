"""What the jobs of the chaos do."""

from __future__ import annotations

import os
import random
import signal
import time

from django_pgjobs import job
from tests import ledger

STUMBLES = 0.3  # how often a body of that fate raises


@job
def chaos(key: str, seconds: float, fate: str = "works") -> dict[str, int]:
    """Work for a while, and end as it is said."""
    ledger.note("start", key)
    time.sleep(seconds)
    if fate == "kills":
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    if fate == "fails" or (fate == "stumbles" and random.random() < STUMBLES):  # noqa: S311
        ledger.note("raise", key)
        raise ValueError(key)
    ledger.note("end", key)
    return {"pid": os.getpid()}
