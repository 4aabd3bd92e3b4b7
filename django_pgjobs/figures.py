"""Add up what a worker does, by queue and kind, and write the sums down now and then.

Invariant: a job costs some additions and no statement; what is not written down yet is lost with the
process, and nothing else is.
"""

from __future__ import annotations

from typing import Any

from django_pgjobs import statements
from django_pgjobs.sessions import Execute

_DONE, _FAILED, _WAIT, _RUN = range(4)


class Figures:
    """The sums since they were last written down. One thread uses it."""

    def __init__(self) -> None:
        """Begin with none."""
        self._sums: dict[tuple[str, str], list[Any]] = {}

    def add(self, queue: str, kind: str, *, failed: bool, wait: float, run: float) -> None:
        """Add one attempt that has ended; `wait` and `run` are seconds."""
        sums = self._sums.get((queue, kind))
        if sums is None:
            sums = self._sums[queue, kind] = [0, 0, 0.0, 0.0]
        sums[_FAILED if failed else _DONE] += 1
        sums[_WAIT] += wait
        sums[_RUN] += run

    def write(self, execute: Execute) -> None:
        """Add the sums to those of the present minute, by the database's clock.

        Where that fails they are kept for the next time.
        """
        if not self._sums:
            return
        names, sums = zip(*self._sums.items(), strict=True)
        queues, kinds = zip(*names, strict=True)
        done, failed, waits, runs = zip(*sums, strict=True)
        columns = {"done": done, "failed": failed, "waits": waits, "runs": runs}
        params = {"queues": queues, "kinds": kinds, **columns}
        execute(statements.ADD_FIGURES, {name: list(column) for name, column in params.items()})
        self._sums.clear()
