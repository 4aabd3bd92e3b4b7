"""What is in the queues, and the switch that pauses one.

Invariant: the figures are read from indexes alone and counted no further than a page can use; a switch
that stands as it is asked for is left alone, with the name of who has set it.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, NamedTuple

from django.db import router
from django.db.models.functions import Now

from django_pgjobs import conf, inspection, registry, roles
from django_pgjobs.options import check_queue
from django_pgjobs.sessions import execute_on_django
from django_pgjobs.windows import WINDOW, by_index

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from django_pgjobs.pauses import Queue

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


@roles.explained("operator")
def pause(queue: str, *, by: str = "", database: str | None = None) -> bool:
    """Have no worker claim from a queue any more, from the commit on; return whether that is new.

    `by` says who has done it, for pages and commands to show. Claimed jobs still run.

    Raises:
        InvalidOption: it is no name of a queue.

    """
    queues = _queues(database)
    queues.get_or_create(name=check_queue(queue))
    running = queues.filter(name=queue, paused_at=None)
    return bool(running.update(paused_at=Now(), paused_by=by[:200]))


@roles.explained("operator")
def resume(queue: str, *, database: str | None = None) -> bool:
    """Let a paused queue go on; return whether it was paused."""
    paused = _queues(database).filter(name=queue, paused_at__isnull=False)
    return bool(paused.update(paused_at=None, paused_by=""))


def _queues(database: str | None) -> QuerySet[Queue]:
    from django_pgjobs.pauses import Queue  # noqa: PLC0415 -- no models before apps are loaded

    return Queue.objects.using(database or router.db_for_write(Queue))
