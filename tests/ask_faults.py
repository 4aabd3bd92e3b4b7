"""Faults to plant into explain, the deploy check, the doctor and `pgjobs`: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any


def _change(module: ModuleType, name: str, old: str, new: str) -> None:
    text = getattr(module, name)
    if old not in text:
        msg = f"The statement must hold {old!r} for this fault, got {text}. Adapt the fault."
        raise AssertionError(msg)
    setattr(module, name, text.replace(old, new))


def probes_keep_the_lock() -> None:
    """Hold the lock that was tried until the caller's transaction ends."""
    from django_pgjobs import explaining  # noqa: PLC0415 -- no models before the apps are loaded

    real: Any = explaining.transaction
    explaining.transaction = SimpleNamespace(
        atomic=real.atomic, set_rollback=lambda *_args, **_options: None
    )


def whoever_leaves_serves() -> None:
    """Take workers that are stopping for those that start jobs."""
    from django_pgjobs import obstacles  # noqa: PLC0415 -- likewise

    _change(obstacles, "STANDING", "and stopping_at is null", "")


def lines_have_no_order() -> None:
    """Count every due job of an equal priority as one that comes before."""
    from django_pgjobs import obstacles  # noqa: PLC0415 -- likewise

    _change(obstacles, "AHEAD", "else me.run_at end, me.id", "else 'infinity' end, me.id")


def every_kind_is_known() -> None:
    """Believe that workers have code for every kind."""
    from django_pgjobs import obstacles  # noqa: PLC0415 -- likewise

    _change(obstacles, "STANDING", "w.kinds ? j.kind", "true")


def aliases_are_unknown() -> None:
    """Look for the first names of kinds alone."""
    from django_pgjobs import deploy_checks  # noqa: PLC0415 -- likewise
    from django_pgjobs.exceptions import UnknownKind  # noqa: PLC0415 -- likewise

    real: Any = deploy_checks.registry

    def get_job(kind: str) -> Any:
        found = real.get_job(kind)
        if found.kind != kind:
            raise UnknownKind(kind)
        return found

    deploy_checks.registry = SimpleNamespace(get_job=get_job)


def secrets_are_shown() -> None:
    """Print what is stored."""
    from django_pgjobs import masking  # noqa: PLC0415 -- likewise

    masking.masked = lambda value: value


def writers_hold_nothing_back() -> None:
    """Look at snapshots alone, which a transaction that has written and idles does not have."""
    from django_pgjobs import symptoms  # noqa: PLC0415 -- likewise

    old = "greatest(age(backend_xmin), age(backend_xid))"
    _change(symptoms, "SNAPSHOTS", old, "age(backend_xmin)")


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        probes_keep_the_lock,
        whoever_leaves_serves,
        lines_have_no_order,
        every_kind_is_known,
        aliases_are_unknown,
        secrets_are_shown,
        writers_hold_nothing_back,
    )
}
