"""`manage.py produce`: enqueue jobs, each beside a row of business, until SIGTERM; roll some back.

The ledger says what became of each transaction: `committed` and `rolled-back` are acknowledged, and
one that has neither may have been committed or not.
"""

from __future__ import annotations

import random
import signal
import time
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import Group
from django.core.management.base import BaseCommand
from django.db import Error, connection, transaction

from tests import ledger
from tests.app.chaos_probes import achaos, chaos

ROLLED_BACK = 0.2  # of the transactions
FATES = ("works", "enqueues", "stumbles", "fails", "kills")
SHARES = (813, 50, 100, 34, 3)
SECONDS = (0.0, 0.01, 0.05, 0.3, 3.0)  # of work; the last is longer than a lease
LENGTHS = (40, 20, 19, 20, 1)
MOST = {"works": 60, "enqueues": 60, "stumbles": 60, "fails": 2, "kills": 2}  # attempts


class RollBack(Exception):
    """A change of mind."""


class Command(BaseCommand):
    """Parse the arguments and produce."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("name")
        parser.add_argument("--seed", required=True)
        parser.add_argument("--rate", type=float, default=12.0, help="transactions a second")

    def handle(self, *_args: Any, name: str, seed: str, rate: float, **_options: Any) -> None:
        """Produce until SIGTERM."""
        chance = random.Random(f"{seed} {name}")  # noqa: S311 -- to be repeated, not to be secret
        stopped: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
        number = 0
        while not stopped:
            number += 1
            count = chance.choice((1, 1, 1, 3))
            produce(chance, f"{name}-{number}", count)
            time.sleep(chance.expovariate(rate))  # not to wait: it is the rate


def produce(chance: random.Random, key: str, count: int) -> None:
    """Make one transaction, of `count` jobs and a row of business."""
    fate = chance.choices(FATES, SHARES)[0]
    options: dict[str, Any] = {"max_attempts": MOST[fate], "priority": chance.choice((0, 0, 10))}
    if chance.random() < 0.1:
        options["delay"] = chance.uniform(0, 3)
    payloads = [
        {"key": f"{key}.{n}", "seconds": chance.choices(SECONDS, LENGTHS)[0], "fate": fate}
        for n in range(count)
    ]
    rolls_back = chance.random() < ROLLED_BACK
    ledger.note(f"meant-{count}", key)
    try:
        with transaction.atomic():
            Group.objects.create(name=key)
            enqueue(chance, payloads, options)
            if rolls_back:
                raise RollBack
    except RollBack:
        ledger.note("rolled-back", key)
    except Error:
        connection.close()
        time.sleep(0.1)  # not to wait: a caller that tries again does not do so at once
    else:
        ledger.note("committed", key)


def enqueue(chance: random.Random, payloads: list[Any], options: dict[str, Any]) -> None:
    """Enqueue in one of the ways there are, after a savepoint that is rolled back."""
    if chance.random() < 0.1:
        try:
            with transaction.atomic():
                chaos.using(**options).enqueue(**{**payloads[0], "key": "savepoint"})
                raise RollBack
        except RollBack:
            pass
    kind = achaos if payloads[0]["fate"] == "works" and chance.random() < 0.2 else chaos
    if len(payloads) > 1:
        kind.using(**options).enqueue_many(payloads)
    else:
        kind.using(**options).enqueue(**payloads[0])
