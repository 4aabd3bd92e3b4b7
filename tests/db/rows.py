"""Jobs in a chosen state, and what a test asks about them."""

from __future__ import annotations

import datetime
import json
from typing import Any

from django_pgjobs.claims import Claim, Claimer
from django_pgjobs.models import Job, Worker
from django_pgjobs.sessions import execute_on_django

AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
FUTURE = datetime.datetime(2999, 1, 1, tzinfo=datetime.UTC)

STARTED = {"attempts": 1, "claims": 1, "attempted_at": AGO}
SHAPES: dict[str, dict[str, Any]] = {
    "pending": {},
    "running": {**STARTED, "locked_at": AGO, "locked_by": 7},
    "done": {**STARTED, "finished_at": AGO},
    "failed": {**STARTED, "finished_at": AGO},
    "cancelled": {**STARTED, "finished_at": AGO},
    "blocked": {},
}
STATUSES = list(SHAPES)

execute = execute_on_django("default")


def make(status: str = "pending", **columns: Any) -> Job:
    """Store a job of that status, the way no verb does it; `columns` override the usual shape."""
    job = Job.objects.create(**{"kind": "noop", "status": status, **SHAPES[status], **columns})
    job.refresh_from_db()
    return job


def make_worker(**columns: Any) -> Worker:
    return Worker.objects.create(**{"host": "h", "pid": 1, "threads": 1, **columns})


def row(job: Job) -> dict[str, Any]:
    return Job.objects.filter(pk=job.pk).values().get()


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {column for column, value in before.items() if after[column] != value}


def claim_of(job: Job, **columns: Any) -> Claim:
    """The claim that made a running row what it is; `columns` make it another one's."""
    fields = {name: getattr(job, name) for name in Claim._fields if name != "waited"}
    return Claim(**{**fields, "payload": json.dumps(job.payload), **columns})


def claimed(limit: int = 100, worker: int = 7, **queues: Any) -> list[Claim]:
    return Claimer("default", worker, **queues).claim(execute, limit)


def ids(jobs: Any) -> list[int]:
    return [job.id for job in jobs]
