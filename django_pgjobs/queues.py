"""What is in the queues, and the switch that pauses one.

Invariant: the figures are read from indexes alone and counted no further than a page can use; a switch
that stands as it is asked for is left alone, with the name of who has set it.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

from django.db.models.functions import Now

from django_pgjobs import conf, inspection, registry
from django_pgjobs.models import Queue
from django_pgjobs.sessions import execute_on_django
from django_pgjobs.windows import WINDOW, by_index

MOST_QUEUES = 200  # with waiting jobs, that a page tells of


class Depth(NamedTuple):
    """The figures of one queue; counts end at one more than `WINDOW`.

    Of more jobs with a key than that only the first are known: there are `more`, due or delayed ones.
    """

    name: str
    due: int
    delayed: int
    running: int
    failed: int  # in the last hour
    oldest: datetime.datetime | None  # the time of the first due job
    more: bool
    paused_at: datetime.datetime | None
    paused_by: str


def declared_queues() -> set[str]:
    """Return the queues that handlers and settings name."""
    of_handlers = {job_type.options.queue for job_type in registry.kinds().values()}
    return of_handlers | set(conf.get().queues)


def depths(alias: str) -> list[Depth]:
    """Return every queue that has something to tell, or that handlers or settings name.

    Of more than `MOST_QUEUES` with waiting jobs these are the first by name.
    """
    params = {
        "declared": sorted(declared_queues()),
        "most": WINDOW + 1,
        "queues": MOST_QUEUES + 1,
    }
    with by_index(alias):
        rows = execute_on_django(alias)(inspection.QUEUES, params)
    return [Depth(*row) for row in rows]


def are_all(queues: list[Depth]) -> bool:
    """Say whether these are all queues with waiting jobs."""
    return sum(queue.due + queue.delayed > 0 for queue in queues) <= MOST_QUEUES


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
