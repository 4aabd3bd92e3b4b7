"""pgmq: messages consumed by a worker, and sent, beside a loop over the same functions of the same pgmq.

The product's consumer is `manage.py runjobs --pgmq QUEUE --drain`, with a handler that does nothing; the raw
loop reads, and archives what it has read. The database tells the time, as in `drain`: from the first moment at
which messages went to the archive to the last. Sent are batches, and single messages, a transaction each.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from typing import LiteralString

import psycopg

from benchmarks import contenders
from benchmarks.contenders import BenchmarkError, Contender
from benchmarks.drain import Finished, rate
from benchmarks.server import Server

PRODUCT = replace(contenders.PRODUCT, module="benchmarks.pgmq_product")
RAW = replace(contenders.RAW, module="benchmarks.pgmq_raw")
CONTENDERS = (PRODUCT, RAW)

# Queues, and how many messages one process of them holds, or reads at once: by default, and for short messages.
QUEUES = {"few": 20, "many": 200}
SENT = "sent"  # the queue that messages are sent to
BATCH = 1_000  # messages of one send_batch
UNITS = {
    **{f"consume, {qty} at a time": "messages/s" for qty in QUEUES.values()},
    "send_batch": "messages/s",
    "send": "messages/s",
}

_FILL: LiteralString = """
    select count(*) from pgmq.send_batch(%(queue)s, array(
        select jsonb_build_object('i', n) from generate_series(1, %(messages)s) n))
"""
_ARCHIVED: dict[str, LiteralString] = {
    "few": "select archived_at, count(*) from pgmq.a_few where read_ct = 1 group by 1 order by 1",
    "many": "select archived_at, count(*) from pgmq.a_many where read_ct = 1 group by 1 order by 1",
}


def title(options: Namespace) -> str:
    """Say what is measured."""
    return (
        f"{options.messages:,} messages consumed, {options.messages:,} sent in batches of {BATCH:,}, "
        f"and one by one for {options.seconds:g} s"
    )


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Consume from a fresh database for each quantity, and send to another one."""
    found: dict[str, float] = {}
    for queue, qty in QUEUES.items():
        consumed = _consume(contender, server, options, queue)
        found[f"consume, {qty} at a time"] = rate(consumed)
    with server.database(contender) as database:
        _prepare(contender, database, SENT)
        batches = contender.ask(database, "send_batch", messages=options.messages, batch=BATCH)
        found["send_batch"] = options.messages / batches["seconds"]
    with server.database(contender) as database:
        _prepare(contender, database, SENT)
        found["send"] = contender.ask(database, "send", seconds=options.seconds)["rate"]
    return found


def _consume(contender: Contender, server: Server, options: Namespace, queue: str) -> Finished:
    """Have one process consume all messages of a queue; return when they were archived."""
    with server.database(contender) as database:
        _prepare(contender, database, queue, options.messages)
        if contender is PRODUCT:
            command = ["runjobs", "--settings=benchmarks.pgmq_settings", f"--pgmq={queue}"]
            command += ["--drain", "--processes=1", "--threads", str(options.threads)]
            contender.run(database, "-m", "django", *command)
        else:
            contender.ask(database, "consume", queue=queue, qty=QUEUES[queue])
        with psycopg.connect(database) as connection:
            archived: Finished = connection.execute(_ARCHIVED[queue]).fetchall()
    total = sum(count for _, count in archived)
    if total != options.messages or len(archived) < 2:  # noqa: PLR2004 -- a first and a last moment
        msg = f"{contender.name} must archive {options.messages} messages read once, got {total}"
        raise BenchmarkError(f"{msg} at {len(archived)} moments.")
    return archived


def _prepare(contender: Contender, database: str, queue: str, messages: int = 0) -> None:
    contender.ask(database, "setup", queue=queue)
    with psycopg.connect(database, autocommit=True) as connection:
        if messages:
            connection.execute(_FILL, {"queue": queue, "messages": messages})
        connection.execute("vacuum analyze")
        connection.execute("checkpoint")
