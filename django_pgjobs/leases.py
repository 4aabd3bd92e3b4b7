"""A worker's lease on what it claimed: registered once, renewed by heartbeats, ended by a fact.

Invariant: a lease ends when `died_at` is written, by whoever sees that the heartbeats stopped or that
the process did. A worker that cannot be sure of its lease starts nothing, and one that is dead never
lives again.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from django_pgjobs import conf, limited_claims, registry, upkeep
from django_pgjobs.board import Board
from django_pgjobs.sessions import Execute


@dataclass(frozen=True)
class Lease:
    """One worker's row in the table of workers, and the board that says how fresh it is."""

    worker: int
    name: str
    board: Board

    @classmethod
    def register(  # noqa: PLR0913 -- the columns of its row
        cls,
        execute: Execute,
        board: Board,
        *,
        pid: int,
        queues: Sequence[str] | None,
        threads: int,
        exclude: Sequence[str] = (),
        by_transaction: Sequence[str] | Literal[True] = (),
    ) -> Lease:
        """Register one start of a worker process; raise what the database raises.

        What it serves, knows and limits is written down once, for those who ask why a job waits.
        """
        sent = time.monotonic()
        host = socket.gethostname()[:255]
        told = {"queues": queues, "exclude": exclude, "by_transaction": by_transaction, **_known()}
        columns = {name: json.dumps(value) for name, value in told.items()}
        [(worker,)] = execute(
            upkeep.REGISTER, {"host": host, "pid": pid, "threads": threads, **columns}
        )
        board.acknowledge(sent)
        return cls(worker, f"{host}:{pid} #{worker}", board)

    @property
    def safe(self) -> bool:
        """Whether a job may start now: nobody can have taken this lease for lost yet."""
        return time.monotonic() - self.board.acknowledged < conf.get().unanswered

    def end(self, execute: Execute, death: str) -> None:
        """Record the death of this worker, and which jobs it had started: only those count an attempt.

        What it still holds is lost at once, for the reaper to take.
        """
        started = json.dumps(self.board.started)
        execute(upkeep.END_LEASE, {"worker": self.worker, "death": death, "started": started})


class Answer(NamedTuple):
    """What the database says to a heartbeat."""

    lost: list[Lease]  # those whose death is recorded
    scheduled: bool  # whether there are schedules: a question of its own would cost those without


def renew(execute: Execute, leases: Sequence[Lease], *, stopping: bool) -> Answer:
    """Renew the leases of living workers in one update."""
    sent = time.monotonic()  # before the database's clock is read, so never too optimistic
    workers = [lease.worker for lease in leases]
    living: dict[int, bool] = dict(
        execute(upkeep.HEARTBEAT, {"workers": workers, "stopping": stopping})
    )
    for lease in leases:
        if lease.worker in living:
            lease.board.acknowledge(sent)
    lost = [lease for lease in leases if lease.worker not in living]
    return Answer(lost, any(living.values()))


def _known() -> dict[str, Any]:
    """Return every kind and alias of this code, with its limits if it has any, and the limited queues."""
    kinds = registry.kinds().items()
    return {
        "kinds": {kind: one.limits.rule(kind) if one.limits else None for kind, one in kinds},
        "limited": {name: limited_claims.queue_rule(name) for name in conf.get().limited_queues},
    }
