"""What works beside the jobs of a worker, in its process, and starts and stops with it."""

from __future__ import annotations

from collections.abc import Callable


class Companion:
    """One of them: this one has nothing to do. All but `start()` may be called from a signal handler."""

    @property
    def busy(self) -> int:
        """How much is going on: the worker ends with 0 only."""
        return 0

    def start(self, wake: Callable[[], None]) -> None:
        """Begin; call `wake` when it is busy no more."""

    def doubt(self) -> None:
        """Take note that a job has ended, which may have given it something to do."""

    def stop(self) -> None:
        """Begin nothing more, and end after what is going on."""

    def close(self) -> None:
        """End now: the process is about to."""


NOBODY = Companion()
