"""Run a worker in this process: alone, with its own keeper, or as the child of a supervisor.

Invariant: the end of the supervisor, however sudden, is the end of its children.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from io import FileIO

from django.db import connections

from django_pgjobs import conf, rights
from django_pgjobs.board import Board
from django_pgjobs.children import ASK_TO_STOP, STOPPED
from django_pgjobs.companions import NOBODY, Companion
from django_pgjobs.keeper import Keeper, kept
from django_pgjobs.leases import Lease
from django_pgjobs.sessions import CONNECTION_ERRORS, IN_ORDER, Session
from django_pgjobs.worker import Worker
from django_pgjobs.worker_options import WorkerOptions

logger = logging.getLogger(__name__)

OnSignals = Callable[[Callable[[], None]], AbstractContextManager[None]]

_PR_SET_PDEATHSIG = 1
_LOOK = 1.0  # seconds between two looks whether a statement goes unanswered


def run_alone(options: WorkerOptions, on_signals: OnSignals, companion: Companion = NOBODY) -> int:
    """Run a worker that keeps its lease in a thread of its own; return its exit status."""
    _check_connections()
    return work(options, on_signals, companion)[0]


def work(
    options: WorkerOptions, on_signals: OnSignals, companion: Companion = NOBODY
) -> tuple[int, Worker]:
    """Do what `run_alone()` does, in a process that has other work too; return the status and the worker."""
    # Whatever ends the worker ends what is beside it: a lease that is kept on would hold its jobs.
    with (
        closing(Session(options.database, IN_ORDER)) as session,
        closing(Board.create(options.most_held)) as board,
    ):
        rights.demand(session.execute, "worker", options.database)
        companion.demand()
        lease = Lease.register(session.execute, board, pid=os.getpid(), **options.told)
        worker = Worker(options, lease, session, companion)
        keeper = Keeper(options.database)
        if options.drain:
            keeper.prepare_drain(options.ends - time.monotonic())
        with _watched(session, keeper):
            with on_signals(worker.stop), kept(keeper, lease, lambda: worker.stopping, worker.lose):
                status = worker.run()
            try:
                worker.settle_stuck()
                lease.end(session.execute, STOPPED)
            except CONNECTION_ERRORS as error:
                logger.warning("Stopped without saying so: %s", error)
    return status, worker


def _check_connections() -> None:
    """Have Django's pools check what they give out, which they do only if they were made like this."""
    for alias in connections:
        connections.settings[alias]["CONN_HEALTH_CHECKS"] = True


@contextmanager
def _watched(session: Session, keeper: Keeper) -> Iterator[None]:
    """Cut their connections off, from a thread beside the block, where a statement goes unanswered."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK):
            session.cut(conf.get().unanswered)
            keeper.cut(conf.get().silence)

    thread = threading.Thread(target=watch, name="pgjobs-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_LOOK)


def run_child(options: WorkerOptions, descriptors: str, companion: Companion = NOBODY) -> int:
    """Run a worker whose lease its supervisor keeps; return its exit status."""
    _check_connections()
    _leave_signals_to_the_supervisor()
    _die_with_parent()
    shared, pipe = (int(descriptor) for descriptor in descriptors.split(","))
    os.set_inheritable(pipe, False)  # noqa: FBT003 -- it takes no name
    board, orders = Board(shared), FileIO(pipe)
    board.close()
    identity, _, name = orders.readline().decode().strip().partition(" ")
    if not identity:
        return 1  # the supervisor is gone already
    session = Session(options.database, IN_ORDER)
    worker = Worker(options, Lease(int(identity), name, board), session, companion)
    threading.Thread(
        target=_obey, args=(orders, worker, session), name="pgjobs-orders", daemon=True
    ).start()
    status = worker.run()
    session.close()
    if status == 0 or worker.drained:
        board.finish()
    if status == 0:
        return 0
    # What was given up may be running still, in a thread that a regular exit would wait for.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _obey(orders: FileIO, worker: Worker, session: Session) -> None:
    """Take orders, a line each, until the supervisor is gone: then nothing here has a lease."""
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    while True:
        if poll.poll(_LOOK * 1_000):
            if not orders.readline():
                os._exit(1)
            worker.stop()
        session.cut(conf.get().unanswered)


def _leave_signals_to_the_supervisor() -> None:
    """Do nothing at a signal that asks to stop.

    Not SIG_IGN: what a handler starts would inherit it, and could not be stopped.
    """
    for number in ASK_TO_STOP:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASK_TO_STOP)


def _die_with_parent() -> None:
    """Ask Linux for SIGKILL when the parent dies: it comes even to a handler that holds the GIL."""
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        logger.debug("prctl is not to be had: the pipe alone ends this process with its parent.")
