"""What a worker was told: by `runjobs`, and by its supervisor, which passes the same on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from django_pgjobs import attempts, conf
from django_pgjobs.claims import Served


class Told(TypedDict):
    """What a worker's row says of it."""

    queues: Sequence[str] | None
    exclude: Sequence[str]
    by_transaction: Sequence[str] | Literal[True]
    threads: int


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
    claim: str | None = (
        None  # how, "lease" or "transaction"; None: as the settings of each queue say
    )
    # By the monotonic clock: when all attempts must have ended, in a process that goes on after them.
    ends: float = math.inf

    @property
    def most_held(self) -> int:
        """How many claims a worker with these options holds at most."""
        # Twice for those that claim by transaction: what they lost is held once more, to be counted.
        return 3 * self.threads + self.async_concurrency + 2 * attempts.MOST_AHEAD

    @property
    def by_lease(self) -> Served | None:
        """The queues that are claimed by lease, None for none."""
        if self.claim == "transaction":
            return None
        apart = set() if self.claim == "lease" else conf.get().transaction_queues
        if self.queues is None:
            return Served(None, [*self.exclude, *sorted(apart)])
        queues = [queue for queue in self.queues if queue not in apart]
        return Served(queues) if queues else None

    @property
    def by_transaction(self) -> Served | None:
        """The queues that are claimed by transaction, None for none."""
        if self.claim == "transaction":
            return Served(self.queues, self.exclude)
        apart = set() if self.claim == "lease" else conf.get().transaction_queues
        queues = [queue for queue in sorted(apart) if self.serves(queue)]
        return Served(queues) if queues else None

    @property
    def told(self) -> Told:
        """What the row of a worker says of the queues that it serves."""
        apart = [] if self.claim == "lease" else sorted(conf.get().transaction_queues)
        return {
            "queues": self.queues,
            "exclude": self.exclude,
            "by_transaction": True if self.claim == "transaction" else apart,
            "threads": self.threads,
        }

    def serves(self, queue: str) -> bool:
        """Whether a worker with these options takes jobs of `queue`."""
        return Served(self.queues, self.exclude).includes(queue)
