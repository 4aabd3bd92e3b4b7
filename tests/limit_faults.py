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


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (gates_stand_open, gates_lock_as_they_count)
}
