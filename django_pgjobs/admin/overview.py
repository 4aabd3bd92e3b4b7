"""The figures at a glance: what waits, runs and has failed, and the last hours as curves.

Invariant: nothing here reads finished jobs but those that failed in the last hour: the curves come from
the sums that workers write down.
"""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

from django.db import router
from django.db.models import Q, Sum
from django.db.models.functions import Now

from django_pgjobs import conf
from django_pgjobs.models import Figure, Job, Worker
from django_pgjobs.queues import are_all, depths

HOURS = 3
_MINUTES = HOURS * 60


class Overview(NamedTuple):
    """The present state; `more` as of a queue."""

    due: int
    more: bool
    oldest: datetime.datetime | None
    delayed: int
    running: int
    failed: int
    paused: int
    workers: int
    silent: int


def overview() -> Overview:
    """Return the present state, of all queues together."""
    alias = router.db_for_write(Job)
    queues = depths(alias)
    lease = datetime.timedelta(seconds=conf.get().lease)
    living = Worker.objects.using(alias).filter(died_at=None)
    heard = living.filter(heartbeat_at__gte=Now() - lease).count()
    return Overview(
        due=sum(queue.due for queue in queues),
        more=any(queue.more for queue in queues) or not are_all(queues),
        oldest=min((queue.oldest for queue in queues if queue.oldest), default=None),
        delayed=sum(queue.delayed for queue in queues),
        running=sum(queue.running for queue in queues),
        failed=sum(queue.failed for queue in queues),
        paused=sum(queue.paused_at is not None for queue in queues),
        workers=heard,
        silent=living.count() - heard,
    )


def curves(queue: str = "") -> dict[str, list[Any]]:
    """Return columns for a chart: minutes (seconds since 1970), attempts done and failed in each."""
    since = Now() - datetime.timedelta(hours=HOURS)
    rows = (
        Figure.objects.using(router.db_for_write(Job))
        .filter(Q(queue=queue) if queue else Q(), minute__gt=since)
        .values("minute")
        .annotate(all_done=Sum("done"), all_failed=Sum("failed"))
    )
    sums = {row["minute"]: (row["all_done"], row["all_failed"]) for row in rows}
    last = max(sums, default=datetime.datetime.now(datetime.UTC))
    last = last.replace(second=0, microsecond=0)
    minutes = [last - datetime.timedelta(minutes=n) for n in reversed(range(_MINUTES))]
    return {
        "minutes": [int(minute.timestamp()) for minute in minutes],
        "done": [sums.get(minute, (0, 0))[0] for minute in minutes],
        "failed": [sums.get(minute, (0, 0))[1] for minute in minutes],
    }
