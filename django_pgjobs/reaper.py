"""Recover the jobs of dead workers, and delete finished jobs that are old enough.

Invariant: death first, as a fact that is committed, then its jobs; a job whose worker is alive is
never touched, however slow it is. Nothing here waits for a row or needs handler code, and the caller's
`execute` bounds how long a statement waits for a table.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from django_pgjobs import conf, figures, functions, gates, upkeep
from django_pgjobs.figures import Figures
from django_pgjobs.plurals import counted
from django_pgjobs.sessions import Execute

logger = logging.getLogger(__name__)

PATIENCE = 2.0  # seconds that a statement of a pass should wait for the lock of a table, at most
BATCH = 1_000  # rows of one statement: some 20 ms, far below any statement_timeout


class Counts(NamedTuple):
    """What one pass did, or would do."""

    workers: int = 0
    jobs: int = 0
    pruned: int = 0

    @property
    def more(self) -> bool:
        """Whether a batch was full, so that there may be more to do at once."""
        return self.jobs >= BATCH or self.pruned >= BATCH


def run(execute: Execute, *, older_than: float | None = None, prune: bool = True) -> Counts:
    """Do one pass of everything: record deaths, reap one batch of jobs, prune one batch each.

    `older_than` is the age in seconds of a heartbeat that means death, by default
    `PGJOBS["LEASE"]`.
    """
    lease = conf.get().lease if older_than is None else older_than
    by_function = functions.are_there(execute)
    workers = _record_deaths(execute, lease, by_function=by_function)
    jobs = _reap(execute, lease, by_function=by_function)
    return Counts(workers, jobs, _prune(execute, by_function=by_function) if prune else 0)


def preview(execute: Execute, *, older_than: float | None = None, prune: bool = True) -> Counts:
    """Count what `run()` would find, changing nothing."""
    lease = {"lease": conf.get().lease if older_than is None else older_than}
    [(workers,)] = execute(upkeep.COUNT_DEAD, lease)
    [(jobs,)] = execute(upkeep.COUNT_LOST, lease)
    pruned = 0
    for status, keep in _kept().items() if prune else ():
        [(count,)] = execute(upkeep.COUNT_OLD[status], {"keep": keep})
        pruned += count
    return Counts(workers, jobs, pruned)


def _record_deaths(execute: Execute, lease: float, *, by_function: bool) -> int:
    death = f"no heartbeat for more than {lease:g} s"
    if by_function:
        dead = execute(functions.RECORD_DEATHS, {"lease": lease})
    else:
        dead = execute(upkeep.RECORD_DEATHS, {"lease": lease, "death": death})
    for worker, host, pid in dead:
        logger.warning(
            "Worker %s:%s #%s is dead: %s.", host, pid, worker, death, extra={"worker_id": worker}
        )
    return len(dead)


def _reap(execute: Execute, lease: float, *, by_function: bool) -> int:
    reap = functions.REAP if by_function else upkeep.REAP
    lost = execute(reap, {"lease": lease, "limit": BATCH})
    sums = Figures()
    for job_id, queue, kind, status, attempts, started in lost:
        if started:
            sums.add_lost(queue, kind)
        logger.warning(
            "Job %s (%s) lost its worker%s: it is %s now.",
            job_id,
            kind,
            f" in attempt {attempts}" if started else ", which had not started it",
            status,
            extra={"job_id": job_id, "kind": kind, "attempt": attempts},
        )
    sums.write(execute)
    return len(lost)


def _prune(execute: Execute, *, by_function: bool) -> int:
    prune = _prune_by_function if by_function else _prune_by_statements
    pruned = prune(execute, _kept())
    if pruned:
        logger.info("Pruned %s.", counted(pruned, "finished job"))
    return pruned


def _prune_by_function(execute: Execute, kept: dict[str, float]) -> int:
    keeps = {status: kept.get(status) for status in upkeep.PRUNE}
    pruned: dict[str, int | None] = dict(execute(functions.PRUNE, {**keeps, "limit": BATCH}))
    if pruned["figures"] is None:
        logger.warning("The figures could not be pruned: the log of the server says why.")
    return sum(pruned[status] or 0 for status in upkeep.PRUNE)


def _prune_by_statements(execute: Execute, kept: dict[str, float]) -> int:
    pruned = 0
    for status, keep in kept.items():
        pruned += len(execute(upkeep.PRUNE[status], {"keep": keep, "limit": BATCH}))
    execute(upkeep.PRUNE_WORKERS, {"keep": upkeep.WORKERS_KEPT})
    figures.prune(execute, upkeep.FIGURES_KEPT)
    execute(gates.PRUNE, {"limit": BATCH})
    return pruned


def _kept() -> dict[str, float]:
    settings = conf.get()
    kept = {
        "done": settings.keep_done,
        "failed": settings.keep_failed,
        "cancelled": settings.keep_cancelled,
    }
    return {status: seconds for status, seconds in kept.items() if seconds is not None}
