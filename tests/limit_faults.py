"""Faults to plant into limits: see `tests.faults`."""

# ruff: noqa: S608 -- the SQL is put together from constants

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
    _change("CLAIM", "debt + sum(coalesce(every, 0))", "debt")
    _change("CLAIM", "debt + sum(every)", "debt")


def rates_save_up() -> None:
    """Let a gate that was not used for long save up for it."""
    _change("CLAIM", "greatest(0, coalesce(", "(coalesce(")


def later_ones_overtake() -> None:
    """Take the first in order that is due, whoever waits before it."""
    due = f"and run_at <= {_gates().NOW} order by id limit 1"
    _change("CLAIM", "order by id limit 1", due)
    _change_find("order by id limit 1", due)


def locked_rows_are_waited_for() -> None:
    """Take the first of a key, whoever holds their rows."""
    _change("CLAIM", "for update skip locked", "")


def claims_lock_all_they_see() -> None:
    """Lock as many of each key as a look may claim in all."""
    _change("CLAIM", "limit room.seats", "limit 100")


def seats_know_no_queue() -> None:
    """Give the slots of keys away, whatever their queue has left."""
    _change("CLAIM", "nth <= queue.free and", "")


def delayed_keys_are_due() -> None:
    """Look for jobs with keys whenever there are some."""
    _change_lanes("survey", "select run_at from keyed", "select statement_timestamp() from keyed")


def limited_queues_are_due() -> None:
    """Look into limited queues whenever there are some jobs in them."""
    _change_lanes(
        "survey", "select run_at from unkeyed", "select statement_timestamp() from unkeyed"
    )


def stricter_kinds_are_passed_by() -> None:
    """Let jobs start whatever waits before them in other queues."""
    _change_find("exists (select from line", "false and exists (select from line")


def gates_are_entered_in_any_order() -> None:
    """Enter gates in the order in which a claim has found them."""
    _change("ENTER", "order by name", "order by array_position(%(gates)s::text[], name)")


_ALL_RATES = "(select rule.kind || ' ' || rule.every from rule)"


def old_rates_hold() -> None:
    """Let what any rate has set count, whether it is still declared or not."""
    _change("CLAIM", f"where rate in {_ALL_RATES}", "")
    _change_find(f"where rate in {_ALL_RATES}", "")


def changed_rates_pay_for_all() -> None:
    """Forget all that a key's rates have set where one of them is not declared any more."""
    paid = f"case when bool_and(rate in {_ALL_RATES}) then min(behind::numeric) end"
    for change in partial(_change, "CLAIM"), _change_find:
        change(f"where rate in {_ALL_RATES}", "")
        change("min(behind::numeric)", paid)


def late_looks_cost_starts() -> None:
    """Count each start from when it was, also where it came late."""
    from django_pgjobs import limits  # noqa: PLC0415 -- for this fault

    limits.LATE = 0.0


def queues_are_ordered_before_a_join() -> None:
    """Choose among the queues after they were put in order, by a join that may lose it."""
    from django_pgjobs import limited_lanes  # noqa: PLC0415 -- likewise

    chosen = f"where name >= %(from_queue)s and {limited_lanes._OPEN}"
    changed = limited_lanes._IN_TURN.replace(chosen, "").replace(
        "limit 500\n)", f"{chosen.replace(' name', ' served.name', 1)} limit 500\n)"
    )
    assert changed.count("from_queue") == 2, changed
    limited_lanes._IN_TURN = changed


def statements_are_compiled() -> None:
    """Let the server compile what it takes for expensive."""
    from django_pgjobs import sessions  # noqa: PLC0415 -- likewise

    sessions.Session.__init__.__defaults__ = ((),)  # type: ignore[misc]
    sessions.IN_ORDER = sessions.IN_ORDER[1:]


def statements_may_sort() -> None:
    """Let the server sort all jobs that it takes for few to find the first."""
    from django_pgjobs import sessions  # noqa: PLC0415 -- likewise

    sessions.IN_ORDER = sessions.UNCOMPILED


def _change_find(old: str, new: str) -> None:
    _change_lanes("find", old, new)


def _change_lanes(name: str, old: str, new: str) -> None:
    from django_pgjobs import limited_lanes  # noqa: PLC0415 -- no models before the apps are loaded

    real = getattr(limited_lanes, name)

    def changed(**options: bool) -> str:
        text: str = real(**options)
        if old not in text:
            msg = f"The statement must hold {old!r} for this fault, got {text}. Adapt the fault."
            raise AssertionError(msg)
        return text.replace(old, new)

    setattr(limited_lanes, name, changed)


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        gates_stand_open,
        gates_lock_as_they_count,
        each_counts_its_own,
        starts_cost_nothing,
        rates_save_up,
        later_ones_overtake,
        locked_rows_are_waited_for,
        claims_lock_all_they_see,
        seats_know_no_queue,
        delayed_keys_are_due,
        limited_queues_are_due,
        stricter_kinds_are_passed_by,
        gates_are_entered_in_any_order,
        old_rates_hold,
        changed_rates_pay_for_all,
        late_looks_cost_starts,
        queues_are_ordered_before_a_join,
        statements_are_compiled,
        statements_may_sort,
    )
}
