"""Wake workers up when a job can start now, once its transaction has committed.

A wake-up only saves waiting: workers poll as well, so one that is lost costs at most their poll.

Invariant: nothing is sent inside the caller's transaction, where a NOTIFY would hold a lock on the
whole server through the commit; and nothing that goes wrong here reaches the caller.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_pgjobs import conf, statements

logger = logging.getLogger(__name__)

CHANNEL = "django_pgjobs"
EVERY_QUEUE = ""  # no queue has an empty name
# A process drops a wake-up that follows another one for the same queue too soon; workers look again,
# for as long as that can be. Too soon is less than the shorter pause, after which a worker looks again
# at the earliest. And while sending has taken more than its share of the time, it is less than the
# longer one: so wake-ups cost little however busy the server is, and however many processes enqueue
# there, each of them too slowly for a short pause to drop anything.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 0.25  # seconds

_SHARE = 0.05  # of a producer's time
_MOST_CREDIT = 0.05  # seconds of sending that may be saved up
_AFTER_FAILURE = 5.0  # seconds without a further try
_MOST_QUEUES = 10_000  # remembered, for projects that make up queues as they go
_RECENT = 8  # callbacks of a transaction among which an equal one is looked for

# By alias and queue: when the last one was sent, and the time that sending may take from then on. An
# update that another thread overwrites does no harm.
_sent: dict[tuple[str, str], tuple[float, float]] = {}


@dataclass(frozen=True)
class _Send:
    """What a commit calls; equal ones can be found among a transaction's callbacks."""

    alias: str
    queue: str

    def __call__(self) -> None:
        _send(self.alias, self.queue)


def wake(alias: str, queue: str) -> None:
    """Wake the workers of a queue when the current transaction commits, at once without one.

    With autocommit off and no `atomic()` nobody says when the commit was: the poll finds the job.
    """
    if not conf.get().notify:
        return
    connection = connections[alias]
    if connection.in_atomic_block:
        send = _Send(alias, queue)
        if not _will_be_called(connection, send):
            transaction.on_commit(send, using=alias, robust=True)
    else:
        _send(alias, queue)


def _will_be_called(connection: BaseDatabaseWrapper, send: _Send) -> bool:
    """Whether an equal callback is registered already: it is called wherever a new one would be.

    The savepoints that it depends on and that can still be rolled back are open, so a new one would
    depend on them too. Without this a transaction that enqueues a million jobs would keep a million
    callbacks.
    """
    return any(known == send for _, known, *_ in connection.run_on_commit[-_RECENT:])


def _send(alias: str, queue: str) -> None:
    now = time.monotonic()
    last, credit = _sent.get((alias, queue), (-math.inf, 0.0))
    credit = min(credit + _SHARE * (now - last), _MOST_CREDIT)
    pause = SHORTEST_PAUSE if credit > 0 else LONGEST_PAUSE
    if now - last < pause:
        return
    connection = connections[alias]
    # A test may run the callbacks of a transaction that is open still.
    if connection.in_atomic_block or not connection.get_autocommit():
        return
    if len(_sent) >= _MOST_QUEUES:
        _sent.clear()
    _sent[alias, queue] = now, -math.inf  # other threads wait for this one's outcome, but not long
    try:
        with connection.cursor() as cursor:
            cursor.execute(statements.NOTIFY, {"channel": CHANNEL, "payload": queue})
        _sent[alias, queue] = now, credit - (time.monotonic() - now)
    # Whatever it is, the caller's job is committed: an error would say that it is not.
    except Exception as error:  # noqa: BLE001
        _sent[alias, queue] = now + _AFTER_FAILURE, 0.0
        logger.warning("No wake-up was sent for the queue %r, workers poll: %s", queue, error)
        if not connection.is_usable():
            connection.close()  # the caller's next query opens another one
