"""`manage.py produce`: enqueue jobs, each beside a row of business, until SIGTERM; roll some back.

The ledger says what became of each transaction: `committed` and `rolled-back` are acknowledged, and
one that has neither may have been committed or not.
"""

from __future__ import annotations

import random
import signal
import time
from argparse import ArgumentParser
from collections import deque
from functools import partial
from typing import Any

from django.contrib.auth.models import Group
from django.core.management.base import BaseCommand
from django.db import Error, connection, transaction

from django_pgjobs import DuplicateJob, Job
from django_pgjobs.job_types import JobType
from tests import ledger
from tests.app.chaos_probes import achaos, chaos
from tests.app.limited_probes import chaos_limited, chaos_once, chaos_ordered, chaos_paced
from tests.app.mixed_rules import MOST, UNIQUE

ROLLED_BACK = 0.2  # of the transactions
FATES = ("works", "enqueues", "stumbles", "snoozes", "fails", "kills")
SHARES = (763, 50, 100, 50, 34, 3)
PLAIN, LIMITED, ORDERED, PACED, ONCE = "plain", "limited", "ordered", "paced", "once"
KINDS = {PLAIN: 55, LIMITED: 13, ORDERED: 9, PACED: 8, ONCE: 15}
LANES, TOPICS = 3, 2
CHANGED = (
    0.05  # how often a change of mind follows: one of the latest jobs is cancelled, or retried
)
SECONDS = (0.0, 0.01, 0.05, 0.3, 3.0)  # of work; the last is longer than a lease
LENGTHS = (40, 20, 19, 20, 1)
INNOCENT = ("works", "stumbles", "snoozes")


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
        made: deque[int] = deque(maxlen=20)
        while not stopped:
            number += 1
            made += produce(chance, f"{name}-{number}", chance.choice((1, 1, 1, 3)))
            if made and chance.random() < CHANGED:
                change(chance, chance.choice(made))
            time.sleep(chance.expovariate(rate))  # not to wait: it is the rate


def produce(chance: random.Random, key: str, count: int) -> list[int]:
    """Make one transaction, of `count` jobs and a row of business; return what may be cancelled."""
    what = chance.choices(list(KINDS), list(KINDS.values()))[0]
    fate = chance.choices(FATES, SHARES)[0] if what == PLAIN else chance.choice(INNOCENT)
    options: dict[str, Any] = {"max_attempts": MOST[fate], "priority": chance.choice((0, 0, 10))}
    if chance.random() < (0.5 if what == ONCE else 0.1):
        options["delay"] = chance.uniform(0, 3)
    payloads: list[dict[str, Any]] = [
        {"key": f"{key}.{n}", "seconds": chance.choices(SECONDS, LENGTHS)[0], "fate": fate}
        for n in range(count)
    ]
    rolls_back = chance.random() < ROLLED_BACK
    ledger.note(f"meant-{0 if what == ONCE else count}", key)
    try:
        with transaction.atomic():
            Group.objects.create(name=key)
            ids = ENQUEUE[what](chance, payloads, options)
            if rolls_back:
                raise RollBack
    except RollBack:
        ledger.note("rolled-back", key)
    except Error:
        connection.close()
        time.sleep(0.1)  # not to wait: a caller that tries again does not do so at once
    else:
        ledger.note("committed", key)
        return ids if fate in INNOCENT else []
    return []


def change(chance: random.Random, job_id: int) -> None:
    """Cancel a job, and perhaps retry it after all."""
    jobs = Job.objects.filter(pk=job_id)
    try:
        ledger.note(f"cancel-{jobs.cancel()}", job_id)
        if chance.random() < 0.5:
            ledger.note(f"retry-{jobs.cancelled().retry()}", job_id)
    except Error:
        connection.close()


def enqueue_plain(chance: random.Random, payloads: list[Any], options: dict[str, Any]) -> list[int]:
    """Enqueue jobs without limits, after a savepoint that is rolled back."""
    if chance.random() < 0.1:
        try:
            with transaction.atomic():
                chaos.using(**options).enqueue(**{**payloads[0], "key": "savepoint"})
                raise RollBack
        except RollBack:
            pass
    kind = achaos if payloads[0]["fate"] == "works" and chance.random() < 0.2 else chaos
    return enqueue(kind.using(**options), payloads)


def enqueue_in_a_lane(
    kind: JobType[..., Any], chance: random.Random, payloads: list[Any], options: dict[str, Any]
) -> list[int]:
    """Enqueue jobs that share a limit, or an order."""
    lane = {"lane": chance.randrange(LANES)}
    return enqueue(kind.using(**options), [payload | lane for payload in payloads])


def enqueue_paced(_: random.Random, payloads: list[Any], options: dict[str, Any]) -> list[int]:
    """Enqueue jobs that have a rate."""
    return enqueue(chaos_paced.using(**options), payloads)


def enqueue_once(chance: random.Random, payloads: list[Any], options: dict[str, Any]) -> list[int]:
    """Enqueue one job unless another stands for it, and note which that is."""
    rule = chance.choice(list(UNIQUE))
    payload = payloads[0] | {"topic": chance.randrange(TOPICS)}
    try:
        job = chaos_once.using(**options, unique=UNIQUE[rule]).enqueue(**payload)
    except DuplicateJob as error:
        ledger.note(f"told-{rule}-{error.job_id}-old", payload["key"])
        return []
    ledger.note(f"told-{rule}-{job.id}-{'old' if job.existed else 'new'}", payload["key"])
    return [job.id]


def enqueue(kind: JobType[..., Any], payloads: list[Any]) -> list[int]:
    """Enqueue one or many."""
    if len(payloads) > 1:
        return kind.enqueue_many(payloads)
    return [kind.enqueue(**payloads[0]).id]


ENQUEUE = {
    PLAIN: enqueue_plain,
    LIMITED: partial(enqueue_in_a_lane, chaos_limited),
    ORDERED: partial(enqueue_in_a_lane, chaos_ordered),
    PACED: enqueue_paced,
    ONCE: enqueue_once,
}
