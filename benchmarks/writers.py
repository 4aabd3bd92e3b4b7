"""writers: what wake-ups cost where many processes enqueue at once, each job in a transaction.

Somebody listens. The product sends wake-ups after the commit and drops many; the raw queue sends one
in the transaction of each insert, as is often done.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

import psycopg

from benchmarks.contenders import Contender
from benchmarks.server import Server

UNITS = {"silent": "jobs/s", "waking": "jobs/s", "waking of silent": "%"}
CHANNELS = ("django_pgjobs", "job")


def title(options: Namespace) -> str:
    """Say what is measured."""
    return f"{options.writers} processes that enqueue for {options.seconds:g} s, without and with wake-ups"


def measure(contender: Contender, server: Server, options: Namespace) -> Mapping[str, float]:
    """Enqueue into a fresh database without and with wake-ups."""
    rates = []
    for notify in (False, True):
        request = {"processes": options.writers, "seconds": options.seconds, "notify": notify}
        with (
            server.database(contender) as database,
            psycopg.connect(database, autocommit=True) as listener,
        ):
            for channel in CHANNELS:
                listener.execute(f"listen {channel}")
            rates.append(contender.ask(database, "writers", **request)["rate"])
    silent, waking = rates
    return {"silent": silent, "waking": waking, "waking of silent": waking / silent * 100}
