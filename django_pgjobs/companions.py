"""What works beside the jobs of a worker, in its process, and starts and stops with it."""

from __future__ import annotations

from collections.abc import Callable


class Companion:
    """One of them: this one has nothing to do. All but `demand()` and `start()` may be called from a signal handler."""

    @property
    def busy(self) -> int:
        """How much is going on: the worker ends with 0 only."""
        return 0

    @property
    def failed(self) -> bool:
        """Whether it could not do all that it was to do."""
        return False

    def demand(self) -> None:
        """Demand of the database what it needs there, before it starts.

        Raises:
            PgJobsError: something is missing.

        """

    def start(self, wake: Callable[[], None]) -> None:
        """Begin; call `wake` when it is busy no more."""

    def doubt(self) -> None:
        """Take note that a job has ended, which may have given it something to do."""

    def settle(self) -> tuple[int, int]:
        """Begin nothing more before `allow()`; return how much it has begun, and how much it may have in a moment."""
        return 0, 0

    def allow(self, number: int) -> None:
        """Let it begin so much more, where `--max-jobs` counts it beside the jobs."""

    def finish(self) -> None:
        """Begin nothing more, and end after what it has taken."""

    def stop(self) -> None:
        """Begin nothing more, and end after what is going on."""

    def close(self) -> None:
        """End now: the process is about to."""


NOBODY = Companion()
