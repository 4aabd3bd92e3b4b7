"""The consumers of the benchmarks."""

from __future__ import annotations

from benchmarks.pgmq import QUEUES
from django_pgjobs.pgmq import consumer


def ignore(message: object) -> None:
    """Do nothing: what is left is the cost of the queue."""


for _queue, _qty in QUEUES.items():
    consumer(_queue, qty=_qty)(ignore)
