"""Faults to plant into unique jobs: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from tests.statement_faults import _change, _change_claims, _statements


def started_keys_are_held() -> None:
    """Keep the key of a job that has started, until it collides with the next one's."""
    clears = _statements().MOVES["claim"].columns["unique_key"]
    _change_claims(f"unique_key = {clears}", "unique_key = unique_key")


def stand_ins_start_early() -> None:
    """Let a job start that stands for others, before their transactions are committed."""
    _change("INSERT_OR_HOLD", "for key share", "")


def conflicts_are_errors() -> None:
    """Insert a key that another transaction may have inserted meanwhile, come what may."""
    conflict = "on conflict (unique_key) where unique_key is not null do nothing"
    _change("INSERT_OR_FIND", conflict, "")


def keys_are_taken_in_any_order() -> None:
    """Insert the keys of a batch in an order that another batch may not have."""
    replacing = ("INSERT_OR_REPLACE", "FREE_OR_REPLACE")
    for name in ("INSERT_OR_FIND", "INSERT_OR_HOLD", "FREE_OR_FIND", *replacing):
        _change(name, "order by unique_key\n    on conflict", "order by random()\n    on conflict")


def running_jobs_are_replaced() -> None:
    """Give a new payload to a job that runs."""
    _change("INSERT_OR_REPLACE", "and status <> 'pending'", "and false")
    _change("INSERT_OR_REPLACE", "where job.status = 'pending'", "")


def finders_lock() -> None:
    """Lock a job that is found, though it may run."""
    from django_pgjobs import inserts  # noqa: PLC0415 -- no models before the apps are loaded

    held = inserts._HELD
    _change("INSERT_OR_FIND", held, f"{held} for share")


def batches_keep_a_part() -> None:
    """Keep what was inserted of a batch, while others of its keys are asked for again."""
    from django_pgjobs import duplicates  # noqa: PLC0415 -- no models before the apps are loaded

    class Kept:
        atomic = staticmethod(lambda using: nullcontext())

    duplicates.transaction = Kept


def freed_keys_come_last() -> None:
    """Give those of a batch whose keys had to be freed other ids than were drawn for them."""
    for name in ("FREE_OR_FIND", "FREE_OR_REPLACE"):
        _change(name, "coalesce(drawn, nextval(", "coalesce(null, nextval(")


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        started_keys_are_held,
        stand_ins_start_early,
        conflicts_are_errors,
        keys_are_taken_in_any_order,
        running_jobs_are_replaced,
        finders_lock,
        batches_keep_a_part,
        freed_keys_come_last,
    )
}
