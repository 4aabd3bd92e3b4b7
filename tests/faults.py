"""Faults to plant into the product, to see that the tests catch them.

    PGJOBS_TEST_FAULT=no-fence make test ARGS=tests/concurrency        must fail

The variable reaches the test process through a fixture, and the processes that it starts through their
settings. Nothing is planted without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from django.apps import AppConfig

from tests import atomic_faults, supervisor_faults

VARIABLE = "PGJOBS_TEST_FAULT"
FENCED = ("COMPLETE", "COMPLETE_WITH_RESULT", "RETRY", "FAIL", "CANCEL", "RELEASE")


def plant(name: str) -> None:
    """Break the product in the way of this name."""
    FAULTS[name]()


class Planted(AppConfig):
    """An app that plants the fault of the environment as it is loaded."""

    name = "tests.faults"

    def ready(self) -> None:
        plant(os.environ[VARIABLE])


def _statements() -> Any:
    from django_pgjobs import statements  # noqa: PLC0415 -- no models before the apps are loaded

    return statements


def _replace(name: str, old: str, new: str) -> None:
    statements = _statements()
    text = getattr(statements, name)
    if old not in text:
        msg = f"statements.{name} must hold {old!r} for this fault, got {text}. Adapt the fault."
        raise AssertionError(msg)
    setattr(statements, name, text.replace(old, new))


def _replace_in_claim(*replacements: tuple[str, str]) -> None:
    statements = _statements()
    claim: Callable[..., str] = statements.claim

    def broken(*arguments: str) -> str:
        text = claim(*arguments)
        for old, new in replacements:
            if old not in text:
                msg = f"The claim must hold {old!r} for this fault, got {text}. Adapt the fault."
                raise AssertionError(msg)
            text = text.replace(old, new)
        return text

    statements.claim = broken


def no_fence() -> None:
    """Settle and release whatever has the job's id."""
    for name in FENCED:
        text = getattr(_statements(), name)
        setattr(
            _statements(),
            name,
            text.replace("case when j.locked_by", "true or case when j.locked_by"),
        )
        if getattr(_statements(), name) == text:
            msg = f"statements.{name} must have a fence, got {text}. Adapt the fault."
            raise AssertionError(msg)


def fence_without_claims() -> None:
    """Let any claim of the same worker settle the job."""
    _replace("COMPLETE", "j.claims = %(claims)s", "%(claims)s > 0")


def claim_in_a_join() -> None:
    """Say `id in (locking select)`, which a join may run again and again."""
    statements = _statements()
    claim: Callable[..., str] = statements.claim

    def broken(*arguments: str) -> str:
        before, _, rest = claim(*arguments).partition(",\ndue as materialized (")
        select, found, update = rest.partition("\n)\nupdate")
        assert found, "adapt the fault to the claim"
        return f"{before}\nupdate" + update.replace(  # noqa: S608
            "= any(array(select id from due))", f"in ({select})"
        )

    statements.claim = broken


def claim_waits() -> None:
    """Wait for locked rows."""
    _replace_in_claim((" SKIP LOCKED", ""))


def claim_counts_no_attempt() -> None:
    """Count an attempt when it ends and not when it starts, so that a crash counts none."""
    _replace_in_claim(("attempts = attempts + 1, ", ""))


def claim_after_death() -> None:
    """Let a worker claim whose death is recorded."""
    _replace_in_claim((f" and {_statements()._LIVING}", ""))


def release_keeps_attempt() -> None:
    """Charge the attempt of a job that never started."""
    for name in ("RELEASE", "RELEASE_ORPHANS"):
        _replace(name, "attempts = attempts - 1, ", "")


def reap_by_id_only() -> None:
    """Write to what was read before, whatever it has become."""
    _replace("REAP", "for update of j skip locked", "")


def reap_by_age() -> None:
    """Take a job for lost when it runs long."""
    _replace("REAP", "(w.died_at is not null or (w.id is null and", "((true and")


def reap_registered_only() -> None:
    """Look for lost jobs among the workers that have a row."""
    _replace("REAP", "w.id is null", "false")


def dead_beats() -> None:
    """Renew the lease of a worker whose death is recorded."""
    _replace("HEARTBEAT", "and died_at is null", "")


def prune_waits() -> None:
    """Wait for locked rows, in no order."""
    for status, text in _statements().PRUNE.items():
        _statements().PRUNE[status] = text.replace(
            "order by finished_at limit %(limit)s for update skip locked",
            "order by random() limit %(limit)s",
        )


def verbs_wait() -> None:
    """Wait for locked rows in retry by hand, cancel and reschedule."""
    from django.db.models import QuerySet  # noqa: PLC0415 -- no models before the apps are loaded

    real = QuerySet.select_for_update

    def waiting(queryset: Any, **options: Any) -> Any:
        return real(queryset, **{**options, "skip_locked": False})

    from django_pgjobs.models import JobQuerySet  # noqa: PLC0415 -- likewise

    JobQuerySet.select_for_update = waiting


def stuck_is_retried_at_once() -> None:
    """Settle an attempt at its timeout though its body goes on."""
    from django_pgjobs.worker import Worker  # noqa: PLC0415 -- no models before the apps are loaded

    real = Worker._leave

    def leave(self: Any) -> None:
        stuck = self._handlers.stuck
        self.settle_stuck()
        for held in stuck:
            self._lease.board.give_back(held.slot)
        real(self)

    Worker._leave = leave


def timeouts_are_losses() -> None:
    """Let the reaper find what did not stop at its timeout."""
    from django_pgjobs.board import Board  # noqa: PLC0415 -- likewise

    Board.timed_out = property(lambda _: [])


def late_results_count() -> None:
    """Take what a handler returns after its time for its result."""
    from django_pgjobs.deadlines import Deadline  # noqa: PLC0415 -- likewise

    real = Deadline.verdict
    Deadline.verdict = lambda self, error: error and real(self, error)


def interruption_is_an_exception() -> None:
    """Raise in a handler what `except Exception` swallows."""
    from django_pgjobs import deadlines  # noqa: PLC0415 -- likewise

    deadlines.Interrupted = type("Interrupted", (Exception,), {})


def watch_waits_for_the_gil() -> None:
    """Let the supervisor wait for a handler that holds the interpreter."""
    from django_pgjobs.children import Child  # noqa: PLC0415 -- likewise

    Child.time_out = lambda _: None


def tasks_share_a_context() -> None:
    """Run all async jobs in one context."""
    from django_pgjobs import loop  # noqa: PLC0415 -- likewise

    shared = loop.contextvars.copy_context()

    class Shared:
        ContextVar, copy_context = loop.contextvars.ContextVar, loop.contextvars.copy_context
        Context = staticmethod(lambda: shared)

    loop.contextvars = Shared


def lanes_keep_transactions() -> None:
    """Leave a transaction open that a call of an async job has begun."""
    from django_pgjobs import leftovers  # noqa: PLC0415 -- likewise

    leftovers.roll_back = list


def a_lane_for_each() -> None:
    """Give each async job threads and connections of its own."""
    from django_pgjobs.lanes import Lanes  # noqa: PLC0415 -- likewise

    real = Lanes.__init__
    Lanes.__init__ = lambda self, _: real(self, 10_000)


def any_kind_is_claimed() -> None:
    """Claim jobs of any kind for whatever has room."""
    from django_pgjobs.claims import Claimer  # noqa: PLC0415 -- likewise

    def claim(self: Any, execute: Any, limit: int, *_: Any, **__: Any) -> Any:
        return self.claim(execute, limit)

    Claimer.claim_kinds = claim


def calls_outlive_their_job() -> None:
    """End a job whose call in another thread goes on."""
    from django_pgjobs.lanes import Calls  # noqa: PLC0415 -- likewise

    async def end(_: Any) -> None: ...

    Calls.end = end


def the_loop_ends() -> None:
    """End the event loop with what a task of a handler raises."""
    from django_pgjobs.loop import Loop  # noqa: PLC0415 -- likewise

    def run(self: Any, loop: Any) -> None:
        loop.run_forever()

    Loop._run = run


FAULTS: dict[str, Callable[[], None]] = (
    supervisor_faults.FAULTS
    | atomic_faults.FAULTS
    | {
        fault.__name__.replace("_", "-"): fault
        for fault in (
            no_fence,
            fence_without_claims,
            claim_in_a_join,
            claim_waits,
            claim_counts_no_attempt,
            claim_after_death,
            release_keeps_attempt,
            reap_by_id_only,
            reap_by_age,
            reap_registered_only,
            dead_beats,
            prune_waits,
            verbs_wait,
            stuck_is_retried_at_once,
            timeouts_are_losses,
            late_results_count,
            interruption_is_an_exception,
            watch_waits_for_the_gil,
            tasks_share_a_context,
            lanes_keep_transactions,
            a_lane_for_each,
            any_kind_is_claimed,
            calls_outlive_their_job,
            the_loop_ends,
        )
    }
)
