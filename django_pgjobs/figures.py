"""Add up what a worker does, by queue and kind, and write the sums down now and then.

Invariant: a job costs some additions and no statement; what is not written down yet is lost with the
process, and nothing else is.
"""

from __future__ import annotations

import logging
from typing import Any

from django_pgjobs import upkeep
from django_pgjobs.claims import Claim
from django_pgjobs.sessions import DATABASE_ERRORS, Execute, Params, reason, refused

logger = logging.getLogger(__name__)

_DONE, _FAILED, _WAIT, _RUN = range(4)
_MOST = 500  # names of a queue and a kind


class Figures:
    """The sums since they were last written down, and how many there were at all. One thread uses it."""

    def __init__(self) -> None:
        """Begin with none."""
        self.done = self.failed = 0  # of the whole time
        self._sums: dict[tuple[str, str], list[Any]] = {}

    def add(self, claim: Claim, run: float, *, failed: bool) -> None:
        """Add one attempt that has ended, after `run` seconds."""
        sums = self._of(claim.queue, claim.kind)
        sums[_FAILED if failed else _DONE] += 1
        self.failed += failed
        self.done += not failed
        sums[_WAIT] += claim.waited
        sums[_RUN] += run

    def add_lost(self, queue: str, kind: str) -> None:
        """Add one attempt whose worker was lost: a failed one, of which no more is known."""
        self._of(queue, kind)[_FAILED] += 1

    def _of(self, queue: str, kind: str) -> list[Any]:
        name = queue, kind
        sums = self._sums.get(name)
        if sums is None:
            # Plain SQL may have invented any number of names: those beyond count under none.
            name = name if len(self._sums) < _MOST else ("", "")
            sums = self._sums.setdefault(name, [0, 0, 0.0, 0.0])
        return sums

    def write(self, execute: Execute) -> None:
        """Add the sums to those of the present minute, by the database's clock.

        Where the server refuses they are kept for the next time, and that is logged: no job waits for
        them. A lost connection is raised.
        """
        if not self._sums:
            return
        names, sums = zip(*self._sums.items(), strict=True)
        queues, kinds = zip(*names, strict=True)
        done, failed, waits, runs = zip(*sums, strict=True)
        columns = {"queues": queues, "kinds": kinds, "done": done, "failed": failed}
        columns |= {"waits": waits, "runs": runs}
        params = {name: list(column) for name, column in columns.items()}
        if _done(execute, upkeep.ADD_FIGURES, params, "written down"):
            self._sums.clear()


def prune(execute: Execute, keep: float) -> None:
    """Delete the sums of minutes that are older than so many seconds, or else the next time."""
    _done(execute, upkeep.PRUNE_FIGURES, {"keep": keep}, "pruned")


def _done(execute: Execute, statement: str, params: Params, what: str) -> bool:
    """Run a statement and say whether the server took it. A lost connection is raised."""
    try:
        execute(statement, params)
    except DATABASE_ERRORS as error:
        if not refused(error):
            raise
        logger.warning("The figures could not be %s: %s", what, reason(error))
        return False
    return True
