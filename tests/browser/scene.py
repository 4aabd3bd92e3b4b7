"""A shop at work, as the pages of the admin show it: the same at every run but for the time."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import NamedTuple

from django.utils import timezone

from django_pgjobs import job
from django_pgjobs.job_types import JobType
from django_pgjobs.models import Figure, Job, Queue, Schedule, Worker
from tests.db import rows

TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/partners.py", line 41, in points
    response.raise_for_status()
  File "/srv/shop/venv/lib/python3.13/site-packages/requests/models.py", line 1026, in raise_for_status
    raise HTTPError(message, response=self)
requests.exceptions.HTTPError: 503, please try again later
"""
KINDS = {"send_receipt": "mail", "make_invoice": "documents", "book_courier": "default"}
DOOMED = "add_loyalty_points"


class Scene(NamedTuple):
    """The rows that a page is about."""

    failed: Job
    worker: Worker
    schedule: Schedule


def declare(kinds: dict[str, JobType]) -> None:
    """Let these be all the kinds that there are."""
    kinds.clear()
    for kind, queue in [*KINDS.items(), (DOOMED, "default")]:
        job(kind=kind, queue=queue)(lambda order_id: order_id)


def set_up() -> Scene:
    """Fill the tables."""
    now = timezone.now()
    ago = lambda **time: now - datetime.timedelta(**time)  # noqa: E731
    worker = rows.make_worker(host="web-1", pid=4211, threads=8, started_at=ago(hours=5))
    rows.make_worker(host="web-2", pid=977, threads=8, queues=["mail"], stopping_at=now)
    rows.make_worker(host="web-2", pid=812, threads=8, heartbeat_at=ago(minutes=4))
    rows.make_worker(host="web-1", pid=3980, threads=8, died_at=ago(hours=5), death="signal 9")
    Queue.objects.create(name="documents", paused_at=ago(minutes=12), paused_by="ada")
    for n in reversed(range(24)):  # ages fall as ids rise
        if n == 4:
            failed = _failed(worker, ago)
        kind, queue = list(KINDS.items())[n % 3]
        named = {"kind": kind, "queue": queue, "payload": {"order_id": 1_000 + n}}
        created = {"created_at": ago(minutes=n if n < 5 else 3 * n + 2)}
        if n < 5:
            rows.make("pending", **named, **created, run_at=ago(minutes=n))
        elif n < 7:
            due = now + datetime.timedelta(hours=n)
            rows.make("pending", **named, **created, run_at=due, priority=-5)
        elif n < 9:
            rows.make("running", **named, **created, locked_by=worker.pk, locked_at=ago(seconds=n))
        else:
            status = "cancelled" if n == 15 else "done"
            rows.make(status, **named, **created, finished_at=ago(minutes=3 * n + 1))
    for n in range(180):
        done = round(60 + 25 * math.sin(n / 17) + 12 * math.sin(n / 3))
        Figure.objects.create(
            minute=ago(minutes=n).replace(second=0, microsecond=0),
            queue="mail",
            kind="send_receipt",
            done=done,
            failed=done // 7 if 40 < n < 60 else n % 4 // 3,
        )
    return Scene(failed, worker, _schedules(now))


def _failed(worker: Worker, ago: Callable[..., datetime.datetime]) -> Job:
    errors = [
        {
            "attempt": n,
            "error": "requests.exceptions.HTTPError",
            "message": "503, please try again later",
            "traceback": TRACEBACK,
            "worker": str(worker),
            "at": ago(minutes=12 - 3 * n).isoformat(),
        }
        for n in (1, 2, 3)
    ]
    return rows.make(
        "failed",
        kind=DOOMED,
        payload={"order_id": 1007, "customer": {"email": "ada@example.com", "api_key": "k-1"}},
        subject_type="shop.order",
        subject_id="1007",
        attempts=3,
        max_attempts=3,
        created_at=ago(minutes=10),
        run_at=ago(minutes=10),
        attempted_at=ago(minutes=3, seconds=20),
        finished_at=ago(minutes=3),
        last_error="requests.exceptions.HTTPError: 503, please try again later",
        errors=errors,
    )


def _schedules(now: datetime.datetime) -> Schedule:
    """Store one of every state; return one to look at."""
    since = now.replace(second=0, microsecond=0)
    hour = since.replace(minute=0) + datetime.timedelta(hours=1)
    night = (hour + datetime.timedelta(days=1)).replace(hour=3)
    day = datetime.timedelta(days=1)
    stored = [
        Schedule(
            name="chase open invoices",
            kind="make_invoice",
            payload={"order_id": 1_007, "api_key": "k-1"},
            cron="0 3 * * *",
            next_at=night,
            last_at=night - day,
        ),
        Schedule(
            name="collect parcels",
            kind="book_courier",
            payload={"order_id": 1_000},
            every=datetime.timedelta(hours=1),
            from_code=True,
            next_at=hour,
            last_at=hour - datetime.timedelta(hours=1),
        ),
        Schedule(name="greet on holidays", kind="send_receipt", cron="0 9 25 12 *", enabled=False),
        Schedule(name="old loyalty report", kind="loyalty_report", every=7 * day, next_at=night),
        Schedule(
            name="sync stock",
            kind="book_courier",
            every=day,
            from_code=True,
            removed_at=now - day,
            last_at=night - 2 * day,
        ),
    ]
    for schedule in stored:
        schedule.since = since
        schedule.save()
    return stored[0]
