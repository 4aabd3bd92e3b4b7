"""What is in the queues, and the switch that pauses one.

Invariant: the figures are read from indexes alone and counted no further than a page can use; a switch
that stands as it is asked for is left alone, with the name of who has set it.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

from django.db.models.functions import Now

from django_pgjobs import inspection, registry
from django_pgjobs.models import Queue
from django_pgjobs.sessions import execute_on_django
from django_pgjobs.windows import WINDOW, by_index


class Depth(NamedTuple):
    """The figures of one queue; counts end at one more than `WINDOW`."""

    name: str
    due: int
    delayed: int
    running: int
    failed: int  # in the last hour
    oldest: datetime.datetime | None  # the time of the first due job
    paused_at: datetime.datetime | None
    paused_by: str


def depths(alias: str) -> list[Depth]:
    """Return every queue that has something to tell, or that a handler names."""
    declared = sorted({job_type.options.queue for job_type in registry.kinds().values()})
    with by_index(alias):
        rows = execute_on_django(alias)(
            inspection.QUEUES, {"declared": declared, "most": WINDOW + 1}
        )
    return [Depth(*row) for row in rows]


def pause(name: str, who: str, alias: str) -> bool:
    """Pause a queue, if it is not; return whether it was changed."""
    queues = Queue.objects.using(alias)
    queues.get_or_create(name=name)
    running = queues.filter(name=name, paused_at=None)
    return bool(running.update(paused_at=Now(), paused_by=who[:200]))


def resume(name: str, alias: str) -> bool:
    """Let a paused queue go on; return whether it was changed."""
    paused = Queue.objects.using(alias).filter(name=name, paused_at__isnull=False)
    return bool(paused.update(paused_at=None, paused_by=""))
