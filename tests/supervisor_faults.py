"""Faults to plant into the supervisor and its children: see `tests.faults`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def no_death_signal() -> None:
    """Be on a system that does not kill processes with their parent."""
    from django_pgjobs import launch  # noqa: PLC0415 -- no models before the apps are loaded

    launch._die_with_parent = lambda: None


def deaths_name_nothing() -> None:
    """Record a death without the jobs that had started."""
    from django_pgjobs import upkeep  # noqa: PLC0415 -- likewise

    given = "%(started)s::jsonb"
    assert given in upkeep.END_LEASE, "adapt the fault to the statement"
    upkeep.END_LEASE = upkeep.END_LEASE.replace(given, f"nullif({given}, {given})")


def no_heartbeats() -> None:
    """Leave the heartbeats to somebody else."""
    from django_pgjobs.keeper import Keeper  # noqa: PLC0415 -- likewise

    real = Keeper.keep
    Keeper.keep = lambda self, _kept, *, stopping: real(self, [], stopping=stopping)


def want_of_memory_is_guessed() -> None:
    """Take every SIGKILL for the kernel's."""
    from django_pgjobs.resources import MemoryKills  # noqa: PLC0415 -- likewise

    MemoryKills.take = lambda _: True


def any_exit_0_is_clean() -> None:
    """Believe an exit status, whoever exits."""
    from django_pgjobs.board import Board  # noqa: PLC0415 -- likewise

    Board.finished = property(lambda _: True)


def leaving_is_stopping() -> None:
    """Give a worker that is replaced no more time than one that is stopped."""
    from django_pgjobs.board import Board  # noqa: PLC0415 -- likewise
    from django_pgjobs.worker import Worker  # noqa: PLC0415 -- likewise

    workers: list[Any] = []
    real_init, real_leave = Worker.__init__, Board.leave

    def init(self: Any, *arguments: Any) -> None:
        real_init(self, *arguments)
        workers.append(self)

    def leave(self: Any) -> None:
        real_leave(self)
        workers[0].stop()

    Worker.__init__, Board.leave = init, leave


def orders_follow_a_number() -> None:
    """Write orders to a descriptor, whoever owns it by then."""
    from django_pgjobs.children import Child  # noqa: PLC0415 -- likewise

    numbers: dict[Any, int] = {}
    real = Child.bury

    def bury(self: Any, memory_kills: Any) -> bool:
        numbers[self] = self.orders.fileno()
        return real(self, memory_kills)

    def order(self: Any, line: str) -> None:
        os.write(numbers[self], line.encode())

    Child.bury, Child.order = bury, order


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        no_death_signal,
        deaths_name_nothing,
        no_heartbeats,
        want_of_memory_is_guessed,
        any_exit_0_is_clean,
        leaving_is_stopping,
        orders_follow_a_number,
    )
}
