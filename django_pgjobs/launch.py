"""Run a worker in this process: alone, with its own keeper, or as the child of a supervisor.

Invariant: the end of the supervisor, however sudden, is the end of its children.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import IO

from django_pgjobs.board import Board
from django_pgjobs.keeper import Keeper, keep_in_thread
from django_pgjobs.leases import Lease
from django_pgjobs.sessions import CONNECTION_ERRORS, Session
from django_pgjobs.worker import Worker, WorkerOptions

logger = logging.getLogger(__name__)

OnSignals = Callable[[Callable[[], None]], AbstractContextManager[None]]

_PR_SET_PDEATHSIG = 1


def run_alone(options: WorkerOptions, on_signals: OnSignals) -> int:
    """Run a worker that keeps its lease in a thread of its own; return its exit status."""
    session = Session(options.database)
    board = Board.create(options.most_held)
    lease = Lease.register(
        session.execute, board, pid=os.getpid(), queues=options.queues, threads=options.threads
    )
    worker = Worker(options, lease, session)
    with on_signals(worker.stop):
        end = keep_in_thread(Keeper(options.database), lease, lambda: worker.stopping, worker.lose)
        status = worker.run()
        end()
    try:
        lease.end(session.execute, "stopped")
    except CONNECTION_ERRORS as error:
        logger.warning("Stopped without saying so: %s", error)
    session.close()
    board.close()
    return status


def run_child(options: WorkerOptions, descriptors: str) -> int:
    """Run a worker whose lease its supervisor keeps; return its exit status.

    Signals that ask to stop are the supervisor's to obey: a terminal and systemd send them to every
    process of a group, and one that came twice would mean not to wait for running jobs.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _die_with_parent()
    board, orders = (int(descriptor) for descriptor in descriptors.split(","))
    lines = os.fdopen(orders, encoding="utf-8")
    identity, _, name = lines.readline().strip().partition(" ")
    if not identity:
        return 1  # the supervisor is gone already
    session = Session(options.database)
    worker = Worker(options, Lease(int(identity), name, Board(board)), session)
    threading.Thread(target=_obey, args=(lines, worker), name="pgjobs-orders", daemon=True).start()
    status = worker.run()
    session.close()
    return status


def _obey(orders: IO[str], worker: Worker) -> None:
    for _ in orders:
        worker.stop()
    # The supervisor is gone: what runs here would run without a lease soon.
    os._exit(1)


def _die_with_parent() -> None:
    """Ask Linux for SIGKILL when the parent dies: it comes even to a handler that holds the GIL."""
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        logger.debug("prctl is not to be had: the pipe alone ends this process with its parent.")
