"""Wait for the end of a job, by asking its row again and again.

Invariant: nothing is held meanwhile: no transaction, no lock, no snapshot.
"""

from __future__ import annotations

import asyncio
import datetime
import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections, router

from django_pgjobs import delays
from django_pgjobs.exceptions import InvalidOption, WaitInTransaction, WaitTimeout
from django_pgjobs.lifecycle import FINAL

if TYPE_CHECKING:
    from django_pgjobs.models import Job

_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.02, 1.0, 1.2

AnyJob = TypeVar("AnyJob", bound="Job")
Timeout = float | datetime.timedelta | None


def wait(job: AnyJob, timeout: Timeout) -> AnyJob:
    """Block until `job` is final, and return it refreshed: see `Job.wait()`."""
    pauses = _pauses(_seconds(timeout))
    while (status := _look(job)) not in FINAL:
        time.sleep(_next(pauses, job, status))
    return job


async def await_(job: AnyJob, timeout: Timeout) -> AnyJob:  # noqa: ASYNC109 -- as wait() has it
    """Wait without blocking until `job` is final, and return it refreshed: see `Job.await_()`."""
    pauses = _pauses(_seconds(timeout))
    while (status := await sync_to_async(_look)(job)) not in FINAL:  # noqa: ASYNC110 -- of a row
        await asyncio.sleep(_next(pauses, job, status))
    return job


def _look(job: Job) -> str:
    """Return the status of the row; if that is final, or the row is gone, read all of it."""
    model = type(job)
    alias = job._state.db or router.db_for_write(model)  # noqa: SLF001 -- Django's documented attribute
    connection = connections[alias]
    if connection.in_atomic_block or not connection.get_autocommit():
        raise WaitInTransaction(
            f"Job.wait() must be called outside of a transaction, got one that is open on {alias!r}. "
            "Wait after the commit, for no worker sees a new job before; in tests, use drain()."
        )
    row = model._base_manager.using(alias).filter(pk=job.pk)  # noqa: SLF001 -- without a project's own filters
    status = row.values_list("status", flat=True).first()
    if status is None or status in FINAL:
        job.refresh_from_db(using=alias)
        return job.status  # it may have been retried by hand in between
    return status


def _seconds(timeout: Timeout) -> float:
    seconds = math.inf if timeout is None else delays.seconds(timeout)
    if seconds is None:
        raise InvalidOption(
            f"timeout must be None or {delays.EXPECTED}, got {timeout!r:.80}. None waits for ever."
        )
    return seconds


def _pauses(seconds: float) -> Iterator[float]:
    """Yield the seconds to sleep before each further look, until the time is over."""
    pause, until = _FIRST_PAUSE, time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * _GROWTH, _LONGEST_PAUSE)


def _next(pauses: Iterator[float], job: Job, status: str) -> float:
    pause = next(pauses, None)
    if pause is None:
        raise WaitTimeout(
            f"Job {job.pk} ({job.kind}) must be final at the end of the timeout, got {status!r}. It "
            "goes on: wait for longer, or see whether a worker serves its queue."
        )
    return pause
