"""Faults to plant into what plain SQL is given, functions and a trigger: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable


def _changed(text: str, old: str, new: str) -> str:
    if old not in text:
        msg = f"The function must hold {old!r} for this fault, got {text}. Adapt the fault."
        raise AssertionError(msg)
    return text.replace(old, new)


def _change(name: str, old: str, new: str) -> None:
    """Change one function as migrations create it, and leave the statements that it is made from."""
    from django_pgjobs import functions  # noqa: PLC0415 -- no models before the apps are loaded

    real = functions.functions

    def broken() -> tuple[functions.Function, ...]:
        return tuple(
            one._replace(body=_changed(one.body, old, new)) if one.name == name else one
            for one in real()
        )

    functions.functions = broken


def functions_know_no_fence() -> None:
    """Reap what was read before, whatever it has become, in the function alone."""
    _change("django_pgjobs_reap", "for update of j skip locked", "")


def functions_reap_the_living() -> None:
    """Take the jobs of workers that live, in the function alone."""
    _change("django_pgjobs_reap", "(w.died_at is not null or", "(true or")


def functions_miss_heartbeats() -> None:
    """Record a death without looking at the heartbeat again, in the function alone."""
    _change("django_pgjobs_record_deaths", "for update skip locked", "")


def functions_prune_too_early() -> None:
    """Delete half a day before the time."""
    _change(
        "django_pgjobs_prune",
        "(epoch from keep_done)",
        "(epoch from keep_done - interval '12 hours')",
    )


def functions_prune_what_is_kept() -> None:
    """Take NULL for no time at all."""
    _change(
        "django_pgjobs_prune",
        "if keep_cancelled is not null then",
        "keep_cancelled := coalesce(keep_cancelled, '0'); if true then",
    )


def functions_are_not_called() -> None:
    """Have Python run the statements, and SQL be the second truth."""
    from django_pgjobs import functions  # noqa: PLC0415 -- likewise

    functions.are_there = lambda _execute: False


def delayed_jobs_are_told() -> None:
    """Notify of jobs of the future."""
    from django_pgjobs.operations import maintenance  # noqa: PLC0415 -- likewise

    real = maintenance.notifier
    maintenance.notifier = lambda schema: _changed(
        real(schema), "and run_at <= statement_timestamp()", ""
    )


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        functions_know_no_fence,
        functions_reap_the_living,
        functions_miss_heartbeats,
        functions_prune_too_early,
        functions_prune_what_is_kept,
        functions_are_not_called,
        delayed_jobs_are_told,
    )
}
