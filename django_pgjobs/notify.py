"""Wake workers up when a job can start now, once its transaction has committed.

A wake-up only saves waiting: workers poll as well, so one that is lost costs at most their poll.

Invariant: nothing is sent inside the caller's transaction, where a NOTIFY would hold a lock on the
whole server through the commit; and nothing that goes wrong here reaches the caller.
"""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_pgjobs import conf, statements

logger = logging.getLogger(__name__)

CHANNEL = "django_pgjobs"
EVERY_QUEUE = ""  # no queue has an empty name
# Seconds in which a process sends one wake-up for a queue and drops the rest. A worker looks again
# that long after each, by when everything that was dropped has been committed.
INTERVAL = 0.05

_AFTER_FAILURE = 5.0  # seconds without a further try
_MOST_QUEUES = 10_000  # remembered, for projects that make up queues as they go
_RECENT = 8  # callbacks of a transaction among which an equal one is looked for

_quiet_until: dict[tuple[str, str], float] = {}  # by alias and queue; a lost update does no harm


class _Send(NamedTuple):
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
            connection.on_commit(send, robust=True)
    elif connection.get_autocommit():
        _send(alias, queue)


def _will_be_called(connection: BaseDatabaseWrapper, send: _Send) -> bool:
    """Whether an equal callback shares the fate of one registered now, so that none is needed.

    Without this, a transaction that enqueues a million jobs would keep a million callbacks.
    """
    savepoints = set(connection.savepoint_ids)
    recent = connection.run_on_commit[-_RECENT:]
    return any(known == send and needed <= savepoints for needed, known, *_ in recent)


def _send(alias: str, queue: str) -> None:
    now = time.monotonic()
    connection = connections[alias]
    # A test may run the callbacks of a transaction that is open still.
    if now < _quiet_until.get((alias, queue), 0.0) or connection.in_atomic_block:
        return
    if len(_quiet_until) >= _MOST_QUEUES:
        _quiet_until.clear()
    _quiet_until[alias, queue] = now + INTERVAL
    try:
        with connection.cursor() as cursor:
            cursor.execute(statements.NOTIFY, {"channel": CHANNEL, "payload": queue})
    # Whatever it is, the caller's job is committed: an error would say that it is not.
    except Exception as error:  # noqa: BLE001
        _quiet_until[alias, queue] = now + _AFTER_FAILURE
        logger.warning("No wake-up was sent for the queue %r, workers poll: %s", queue, error)
        if not connection.is_usable():
            connection.close()  # the caller's next query opens another one
