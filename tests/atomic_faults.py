"""Faults to plant into the transactions of jobs: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def atomic_is_ignored() -> None:
    """Run an atomic handler as any other, and settle its job afterwards."""
    from django_pgjobs.job_types import JobType  # noqa: PLC0415 -- no models before the apps are loaded

    JobType.atomic = property(lambda _: False, lambda *_: None)


def lost_leases_commit() -> None:
    """Commit what a handler wrote whose lease was lost."""
    from django_pgjobs import atomic, outcomes  # noqa: PLC0415 -- likewise
    from django_pgjobs.sessions import execute_on_django  # noqa: PLC0415 -- likewise

    def complete(done: Any, worker: int, alias: str) -> None:
        outcomes.settle(execute_on_django(alias), worker, [done])

    atomic._complete = complete


def failures_keep_writes() -> None:
    """Commit what a handler wrote that failed."""
    from django_pgjobs import atomic  # noqa: PLC0415 -- likewise

    real = atomic.transaction

    class Kept:
        atomic, on_commit = staticmethod(real.atomic), staticmethod(real.on_commit)
        set_rollback = staticmethod(lambda *_, **__: None)

    atomic.transaction = Kept


def broken_transactions_pass() -> None:
    """Look at nothing before the commit."""
    from django_pgjobs import atomic  # noqa: PLC0415 -- likewise

    atomic._check = lambda *_: None


def lost_claims_count_nothing() -> None:
    """Leave a job alone whose transaction was lost."""
    from django_pgjobs import claims  # noqa: PLC0415 -- likewise

    claims.retake = lambda *_: ([], [])


def lost_claims_are_anybodys() -> None:
    """Let a thread claim what another one has lost and nobody has counted."""
    from django_pgjobs.transactions import Transactions  # noqa: PLC0415 -- likewise

    class Unknown(set[Any]):
        def __contains__(self, _: object) -> bool:
            return False

    real = Transactions.__init__

    def init(self: Any, *arguments: Any) -> None:
        real(self, *arguments)
        self._at_stake = Unknown()

    Transactions.__init__ = init


def retake_of_any_claim() -> None:
    """Retake a job whatever has become of it since."""
    from django_pgjobs import statements  # noqa: PLC0415 -- likewise

    token = f"{statements._NEXT_CLAIM} = s.claims"
    assert token in statements.RETAKE, "adapt the fault to the statement"
    statements.RETAKE = statements.RETAKE.replace(token, "s.claims > 0")


def retakes_without_an_answer_are_forgotten() -> None:
    """Take a claim that was made again, without the worker's hearing of it, for somebody else's."""
    from django_pgjobs import statements  # noqa: PLC0415 -- likewise

    statements.RETAKE, own, _ = statements.RETAKE.partition("union all")
    assert own, "adapt the fault to the statement"


def callbacks_undo() -> None:
    """Take the error of a callback for one of the commit."""
    from django_pgjobs import atomic, transactions  # noqa: PLC0415 -- likewise

    for module in (atomic, transactions):
        real = module.transaction

        class Unknown:
            atomic, set_rollback = staticmethod(real.atomic), staticmethod(real.set_rollback)

            @staticmethod
            def on_commit(*_: Any, **__: Any) -> None: ...

        module.transaction = Unknown


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        atomic_is_ignored,
        lost_leases_commit,
        failures_keep_writes,
        broken_transactions_pass,
        lost_claims_count_nothing,
        lost_claims_are_anybodys,
        retake_of_any_claim,
        retakes_without_an_answer_are_forgotten,
        callbacks_undo,
    )
}
