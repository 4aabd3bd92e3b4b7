"""Faults to plant into cancelling, progress and waiting: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.statement_faults import _change


def requests_wait_for_room() -> None:
    """Look for requests only when there is room for a claim."""
    from django_pgjobs.relay import Relay  # noqa: PLC0415 -- no models before the apps are loaded

    real = Relay.carry

    def carry(self: Any, execute: Any, handlers: Any) -> None:
        if handlers.room > 0:
            real(self, execute, handlers)

    Relay.carry = carry


def requests_reach_any_claim() -> None:
    """Pass a request on to whatever claim of the job runs here."""
    from django_pgjobs import statements  # noqa: PLC0415 -- likewise
    from django_pgjobs.claims import Claim  # noqa: PLC0415 -- likewise

    Claim.token = property(lambda claim: (claim.id, 1))
    select = "select id, claims, true from"
    assert select in statements.EXCHANGE, "Adapt the fault."
    statements.EXCHANGE = statements.EXCHANGE.replace(select, "select id, 1, true from")


def progress_is_not_fenced() -> None:
    """Write progress into the row whoever has the job by now."""
    from django_pgjobs import statements  # noqa: PLC0415 -- likewise

    assert statements._SETTLED in statements.EXCHANGE, "Adapt the fault."
    assert "and locked_by = %(worker)s\n    for" in statements.EXCHANGE, "Adapt the fault."
    statements.EXCHANGE = statements.EXCHANGE.replace(
        statements._SETTLED, "j.id = s.id and %(worker)s > 0"
    ).replace("and locked_by = %(worker)s\n    for", "for")


def progress_waits() -> None:
    """Wait for rows that somebody has locked."""
    from django_pgjobs import statements  # noqa: PLC0415 -- likewise

    assert "for update skip locked" in statements.EXCHANGE, "Adapt the fault."
    statements.EXCHANGE = statements.EXCHANGE.replace("for update skip locked", "for update")


def cancellations_are_failures() -> None:
    """Take the cancellation of an async handler for an error, though it was requested."""
    from django_pgjobs import execution  # noqa: PLC0415 -- likewise

    execution._as_asked = lambda error, _: error


def stops_are_retried() -> None:
    """Take a handler that stops for one that failed."""
    from django_pgjobs import execution  # noqa: PLC0415 -- likewise

    execution.JobCancelled = type("JobCancelled", (Exception,), {})


def requests_beat_completions() -> None:
    """Let a request that came before the settle turn `done` into `cancelled`."""
    cancelled = "case when j.cancel_requested_at is null then 'done' else 'cancelled' end"
    _change("COMPLETE", "status = 'done'", f"status = {cancelled}")


def tidying_up_is_cancelled() -> None:
    """Cancel an async handler at each look, also while it tidies up."""
    from django_pgjobs import relay  # noqa: PLC0415 -- likewise

    real = relay.Relay.carry

    def carry(self: Any, execute: Any, handlers: Any) -> None:
        for _, line in handlers.listening:
            line.asked = False
        real(self, execute, handlers)

    relay.Relay.carry = carry


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        requests_wait_for_room,
        requests_reach_any_claim,
        progress_is_not_fenced,
        progress_waits,
        cancellations_are_failures,
        stops_are_retried,
        requests_beat_completions,
        tidying_up_is_cancelled,
    )
}
