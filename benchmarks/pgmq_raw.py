"""The same pgmq, used by hand with psycopg: read, handle, archive, and read again; statements are prepared.

It has none of the rest: no visibility that is prolonged, no fence, no dead letters, threads or checks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from pgmq import get_embedded_install_sql

from benchmarks.pgmq import SENT
from benchmarks.process import answer, calls_a_second
from benchmarks.raw import connect

READ = "select msg_id, message from pgmq.read(%s, 30, %s)"
ARCHIVE = "select pgmq.archive(%s, %s::bigint[])"
SEND = "select pgmq.send(%s, %s::jsonb)"
SEND_BATCH = "select pgmq.send_batch(%s, %s::jsonb[])"


def setup(queue: str) -> dict[str, Any]:
    """Install pgmq and create a queue."""
    with connect() as connection:
        connection.execute(get_embedded_install_sql().encode(), prepare=False)
        connection.execute("select pgmq.create(%s)", [queue])
    return {}


def consume(queue: str, qty: int) -> dict[str, Any]:
    """Read and archive batches until nothing is left."""
    with connect() as connection:
        while rows := connection.execute(READ, [queue, qty]).fetchall():
            done = []
            for message_id, message in rows:
                ignore(message)
                done.append(message_id)
            connection.execute(ARCHIVE, [queue, done])
    return {}


def ignore(message: object) -> None:
    """Do nothing."""


def send_batch(messages: int, batch: int) -> dict[str, Any]:
    """Send messages in batches, unchecked, a transaction each, and get their ids."""
    with connect() as connection:
        connection.execute(SEND_BATCH, [SENT, ['{"i": 0}']])
        begin = time.perf_counter()
        for first in range(0, messages, batch):
            texts = [json.dumps({"i": i}) for i in range(first, min(first + batch, messages))]
            connection.execute(SEND_BATCH, [SENT, texts]).fetchall()
        return {"seconds": time.perf_counter() - begin}


def send(seconds: float) -> dict[str, Any]:
    """Send messages one by one, a transaction each."""

    def connected() -> Callable[[int], object]:
        connection = connect()
        return lambda i: connection.execute(SEND, [SENT, json.dumps({"i": i})]).fetchall()

    return {"rate": calls_a_second(1, seconds, connected)}


VERBS = (setup, consume, send_batch, send)

if __name__ == "__main__":
    answer({f.__name__: f for f in VERBS})
