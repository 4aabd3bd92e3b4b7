"""Drain one batch of jobs where no worker can stay: in a call that ends, in a process that goes on.

The worker is the same as in `runjobs`, in a thread of its own, so the caller's connections stay as they are.

Invariant: a batch ends in time. No job starts once its seconds are over, and what runs longer than the
time that follows is told to stop, as at a timeout. No thread stays, but that of a handler which does not stop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from django.db import connections

from django_pgjobs import deadlines
from django_pgjobs.exceptions import PgJobsError
from django_pgjobs.launch import work
from django_pgjobs.sessions import in_transaction
from django_pgjobs.worker import Worker
from django_pgjobs.worker_options import WorkerOptions


class Batch(NamedTuple):
    """What a batch did."""

    done: int = 0
    failed: int = 0  # attempts, whether a further one follows or not
    more: bool = False  # whether it ended before it found that nothing was due


def run(options: WorkerOptions, seconds: float) -> Batch:
    """Run due jobs until none is due, or `options.max_jobs` are done, or the time is over.

    After so many seconds no job starts; what runs then is interrupted `options.shutdown_timeout` later.

    Raises:
        PgJobsError: a transaction is open in this thread.
        psycopg.Error, django.db.Error: the worker could not be registered.

    """
    if in_transaction(options.database):
        raise PgJobsError(
            "A batch must be run outside a transaction, since it sees committed jobs only, got one that is "
            "open. Take the view out of atomic(); in a test use django_pgjobs.testing.drain(), or a "
            "TransactionTestCase (with pytest: transactional_db)."
        )
    limit = options.shutdown_timeout
    chosen = replace(
        options,
        drain=True,
        notify=False,
        ends=time.monotonic() + seconds + limit,
        shutdown_timeout=limit + 2 * deadlines.GRACE,  # in which it is known what is stuck
    )
    return _Thread(chosen).run_for(seconds)


class _Thread:
    """The thread of one batch."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._late = False
        self._stops: list[Callable[[], None]] = []  # one, once there is a worker
        self._worker: Worker | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="pgjobs-batch", daemon=True)

    def run_for(self, seconds: float) -> Batch:
        """Run until all is done, or for so long and what it takes to end then."""
        self._thread.start()
        try:
            self._thread.join(seconds)
        finally:  # also where a signal ends the caller
            self._stop()
        self._thread.join()
        if self._error is not None:
            raise self._error
        if self._worker is None:
            return Batch(more=True)
        figures = self._worker.figures
        return Batch(figures.done, figures.failed, not self._worker.drained)

    def _stop(self) -> None:
        self._late = True
        for stop in self._stops:
            stop()

    def _run(self) -> None:
        try:
            _, self._worker = work(self._options, self._hand_over)
        except BaseException as error:  # noqa: BLE001 -- raised in the caller's thread
            self._error = error
        finally:
            connections.close_all()

    @contextmanager
    def _hand_over(self, stop: Callable[[], None]) -> Iterator[None]:
        self._stops.append(stop)
        if self._late:  # asked after that: either side sees what the other has written
            stop()
        yield
