"""What a worker was told: by `runjobs`, and by its supervisor, which passes the same on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django_pgjobs import attempts


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """What `runjobs` was told. Times are seconds; `queues` None serves all but `exclude`."""

    database: str
    queues: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    threads: int = 8
    async_concurrency: int = 100
    poll: float = 1.0
    notify: bool = True
    shutdown_timeout: float = 30.0
    drain: bool = False
    max_jobs: int | None = None
    max_rss: int | None = None  # bytes

    @property
    def most_held(self) -> int:
        """How many claims a worker with these options holds at most."""
        return self.threads + self.async_concurrency + 2 * attempts.MOST_AHEAD

    def serves(self, queue: str) -> bool:
        """Whether a worker with these options takes jobs of `queue`."""
        return queue not in self.exclude if self.queues is None else queue in self.queues
