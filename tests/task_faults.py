"""Faults to plant into the backend of Django's tasks: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def any_module_is_imported() -> None:
    """Import whatever module a row names."""
    from django_pgjobs.tasks import finding  # noqa: PLC0415 -- no models before the apps are loaded

    finding._may_be_imported = bool


def run_after_is_lost() -> None:
    """Enqueue a task that is to run later for now."""
    from django_pgjobs.tasks import framework, task_types  # noqa: PLC0415 -- likewise

    real = task_types._options

    def options(declared: Any, task: Any) -> Any:
        return real(declared, framework.unvalidated(task, run_after=None))

    task_types._options = options


def signals_have_another_sender() -> None:
    """Send the worker's signals from the class that all backends have in common."""
    from django_pgjobs.tasks import framework, signals  # noqa: PLC0415 -- likewise

    signals._backend_of = lambda _alias: framework.BaseTaskBackend


def calls_fit_any_function() -> None:
    """Enqueue whatever a function without names for its arguments is called with."""
    from django_pgjobs.tasks import calls  # noqa: PLC0415 -- likewise

    calls.Call.check = lambda *_: None


def any_declaration_counts() -> None:
    """Let a function be declared again with other options, which nobody reads."""
    from django_pgjobs.tasks import declaring  # noqa: PLC0415 -- likewise

    declaring._check_declaration = lambda *_: None


def tasks_of_classes_are_lost() -> None:
    """Find a task only where its path says that it is."""
    from django_pgjobs.tasks import finding  # noqa: PLC0415 -- likewise

    finding._declared = lambda _: None


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        any_module_is_imported,
        run_after_is_lost,
        signals_have_another_sender,
        calls_fit_any_function,
        any_declaration_counts,
        tasks_of_classes_are_lost,
    )
}
