"""django_pgjobs.pgmq as it is measured: its public interface, on Django's and its own defaults."""

from __future__ import annotations

import os
import time
from typing import Any

import django
from django.core.management import call_command

from benchmarks.pgmq import SENT
from benchmarks.process import answer, calls_a_second


def setup(queue: str) -> dict[str, Any]:
    """Install pgmq and create a queue."""
    from django_pgjobs.pgmq import Queue  # noqa: PLC0415 -- once the apps are loaded

    call_command("migrate", verbosity=0)
    Queue(queue).create()
    return {}


def send_batch(messages: int, batch: int) -> dict[str, Any]:
    """Send messages in batches, checked, a transaction each, and get their ids."""
    from django_pgjobs.pgmq import Queue  # noqa: PLC0415 -- likewise

    queue = Queue(SENT)
    queue.send_batch([{"i": 0}])  # connected
    begin = time.perf_counter()
    for first in range(0, messages, batch):
        queue.send_batch({"i": i} for i in range(first, min(first + batch, messages)))
    return {"seconds": time.perf_counter() - begin}


def send(seconds: float) -> dict[str, Any]:
    """Send messages one by one, a transaction each."""
    from django_pgjobs.pgmq import Queue  # noqa: PLC0415 -- likewise

    queue = Queue(SENT)
    return {"rate": calls_a_second(1, seconds, lambda: lambda i: queue.send({"i": i}))}


VERBS = (setup, send_batch, send)

if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.pgmq_settings"
    django.setup()
    answer({f.__name__: f for f in VERBS})
