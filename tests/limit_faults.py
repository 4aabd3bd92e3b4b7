"""Faults to plant into limits: see `tests.faults`."""

# ruff: noqa: S608 -- the SQL is put together from constants

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _gates() -> Any:
    from django_pgjobs import gates  # noqa: PLC0415 -- no models before the apps are loaded

    return gates


def _change(name: str, old: str, new: str) -> None:
    text = getattr(_gates(), name)
    if old not in text:
        msg = f"The statement must hold {old!r} for this fault, got {text}. Adapt the fault."
        raise AssertionError(msg)
    setattr(_gates(), name, text.replace(old, new))


def gates_stand_open() -> None:
    """Count and claim without a lock."""
    _change("CLAIM", _gates()._MINE, f"select name from {_gates().GATE}")
    _gates().LOCK = "select %(visit)s"


def gates_lock_as_they_count() -> None:
    """Lock and count in one statement."""
    locking = f"select name from {_gates().GATE} where name = any(%(gates)s::text[]) for update"
    _change("CLAIM", f"({_gates()._MINE})", "(select name from got)")
    _change(
        "CLAIM",
        "lane as materialized (",
        f"got as materialized ({locking}), lane as materialized (",
    )
    _gates().LOCK = "select %(visit)s"


def each_counts_its_own() -> None:
    """Count the running jobs of this worker alone."""
    own = "job.locked_by = %(worker)s and job.concurrency_key = lane.key"
    _change("CLAIM", "job.concurrency_key = lane.key", own)
    _change_find("job.concurrency_key = lane.key", own)


def starts_cost_nothing() -> None:
    """Let rates forget what has started."""
    _change("CLAIM", "+ spent.debt *", "+ 0 *")


def rates_save_up() -> None:
    """Let a gate that was not used for long save up for it."""
    now = f"greatest(next_at, {_gates().NOW})"
    _change("CLAIM", now, "next_at")
    _change("CLAIM", "greatest(0, coalesce(", "(coalesce(")


def later_ones_overtake() -> None:
    """Take the first in order that is due, whoever waits before it."""
    due = f"and run_at <= {_gates().NOW} order by id limit 1"
    _change("CLAIM", "order by id limit 1", due)
    _change_find("order by id limit 1", due)


def _change_find(old: str, new: str) -> None:
    real = _gates().find

    def find(**options: bool) -> str:
        text = real(**options)
        if old not in text:
            msg = f"The statement must hold {old!r} for this fault, got {text}. Adapt the fault."
            raise AssertionError(msg)
        return text.replace(old, new)

    _gates().find = find


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        gates_stand_open,
        gates_lock_as_they_count,
        each_counts_its_own,
        starts_cost_nothing,
        rates_save_up,
        later_ones_overtake,
    )
}
