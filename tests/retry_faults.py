"""Faults to plant into retries and what handlers ask for: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def snoozes_spend_attempts() -> None:
    """Count a snooze as an attempt."""
    from django_pgjobs import statements  # noqa: PLC0415 -- no models before the apps are loaded

    given_back = f"attempts = {statements._GIVEN_BACK}"
    assert given_back in statements.SNOOZE, "Adapt the fault."
    statements.SNOOZE = statements.SNOOZE.replace(given_back, "attempts = attempts")


def snoozes_are_failures() -> None:
    """Take a snooze for an error like any other."""
    from django_pgjobs import execution  # noqa: PLC0415 -- likewise

    execution._not_done = execution.failed


def snoozed_writes_are_kept() -> None:
    """Commit what an atomic handler wrote that asked to be run later."""
    from django_pgjobs import atomic  # noqa: PLC0415 -- likewise
    from django_pgjobs.outcomes import Snoozed  # noqa: PLC0415 -- likewise

    run, real = atomic.execution.run_untold, atomic.transaction
    outcomes: list[Any] = []

    def noting(*arguments: Any) -> Any:
        outcomes.append(run(*arguments))
        return outcomes[-1]

    def set_rollback(*arguments: Any, **options: Any) -> None:
        if not isinstance(outcomes[-1], Snoozed):
            real.set_rollback(*arguments, **options)

    class Kept:
        atomic, on_commit = staticmethod(real.atomic), staticmethod(real.on_commit)

    Kept.set_rollback = staticmethod(set_rollback)
    atomic.execution.run_untold, atomic.transaction = noting, Kept


def named_delays_are_ignored() -> None:
    """Let the policy decide however long a handler asks to wait."""
    from django_pgjobs import retries  # noqa: PLC0415 -- likewise

    retries.Retry = type("Other", (Exception,), {})


def discards_are_retried() -> None:
    """Give a job another attempt whose handler wanted none."""
    from django_pgjobs import retries  # noqa: PLC0415 -- likewise

    retries.Discard = type("Other", (Exception,), {})


def any_error_is_retried() -> None:
    """Ignore `retry_on` and `discard_on`."""
    from django_pgjobs.exceptions import Discard  # noqa: PLC0415 -- likewise
    from django_pgjobs.retries import Retries  # noqa: PLC0415 -- likewise

    Retries._gives_up = lambda _, kind: issubclass(kind, Discard)


def retry_on_wins() -> None:
    """Retry what both options cover."""
    from django_pgjobs.retries import Retries  # noqa: PLC0415 -- likewise

    real = Retries._gives_up

    def gives_up(self: Any, kind: Any) -> bool:
        wanted = self.retry_on != (Exception,) and issubclass(kind, self.retry_on)
        return not wanted and real(self, kind)

    Retries._gives_up = gives_up


def bad_policies_lose_jobs() -> None:
    """Let what a policy raises pass."""
    from django_pgjobs import execution, retries  # noqa: PLC0415 -- likewise
    from django_pgjobs.registry import find  # noqa: PLC0415 -- likewise

    def next_delay(claim: Any, error: BaseException) -> float | None:
        job_type = find(claim.kind)
        rules = job_type.retries if job_type else retries.DEFAULTS
        delay: float | None = rules.delay(claim.attempt, error, execution._RNG)
        return delay

    execution._next_delay = next_delay


def any_answer_is_a_delay() -> None:
    """Take what a policy says as it is."""
    from django_pgjobs import retries  # noqa: PLC0415 -- likewise

    retries.delays = type("Any", (), {"seconds": lambda answer: answer, "LONGEST": 1e300})


def failures_come_back_together() -> None:
    """Spread no delay."""
    from django_pgjobs.retries import _Spread  # noqa: PLC0415 -- likewise

    _Spread.spread = lambda _, middle, __: middle


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        snoozes_spend_attempts,
        snoozes_are_failures,
        snoozed_writes_are_kept,
        named_delays_are_ignored,
        discards_are_retried,
        any_error_is_retried,
        retry_on_wins,
        bad_policies_lose_jobs,
        any_answer_is_a_delay,
        failures_come_back_together,
    )
}
