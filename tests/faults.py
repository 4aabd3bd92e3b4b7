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

from tests import (
    admin_faults,
    ask_faults,
    atomic_faults,
    cancel_faults,
    connection_faults,
    consumer_faults,
    drain_faults,
    limit_faults,
    pgmq_faults,
    retry_faults,
    role_faults,
    schedule_faults,
    sql_faults,
    statement_faults,
    supervisor_faults,
    task_faults,
    testing_faults,
    unique_faults,
)

VARIABLE = "PGJOBS_TEST_FAULT"


def plant(name: str) -> None:
    """Break the product in the way of this name."""
    FAULTS[name]()


class Planted(AppConfig):
    """An app that plants the fault of the environment as it is loaded."""

    name = "tests.faults"

    def ready(self) -> None:
        plant(os.environ[VARIABLE])


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


def limits_wait_for_any_room() -> None:
    """Claim what has limits only while both sorts of handlers have room."""
    from django_pgjobs.intake import Intake  # noqa: PLC0415 -- likewise

    Intake.claim_limited_kinds = lambda *_, **__: []


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


def wake_ups_in_the_transaction() -> None:
    """Send wake-ups inside the caller's transaction."""
    from django_pgjobs import notify  # noqa: PLC0415 -- likewise

    def wake(alias: str, queue: str) -> None:
        with notify.connections[alias].cursor() as cursor:
            params = {"channel": notify.CHANNEL, "payload": queue}
            cursor.execute(notify.statements.NOTIFY, params)

    notify.wake = wake


def enqueued_outside() -> None:
    """Insert jobs on a connection of their own, which commits at once."""
    from django_pgjobs import enqueueing  # noqa: PLC0415 -- likewise
    from django_pgjobs.sessions import connect  # noqa: PLC0415 -- likewise

    class Outside(dict[str, Any]):
        def __missing__(self, alias: str) -> Any:
            return connect(alias)

        def all(self, **_: Any) -> list[Any]:
            return []

    enqueueing.connections = Outside()


def any_settle_was_ours() -> None:
    """Take whatever became of a job for what was to be written."""
    from django_pgjobs import outcomes  # noqa: PLC0415 -- likewise

    outcomes._Standing.shows = lambda *_: True


def any_lease_is_safe() -> None:
    """Start jobs however long ago the last heartbeat was acknowledged."""
    from django_pgjobs.leases import Lease  # noqa: PLC0415 -- likewise

    Lease.safe = True


def threads_end_unnoticed() -> None:
    """Go on without a thread that has failed, and with what it held."""
    from contextlib import suppress  # noqa: PLC0415 -- likewise

    from django_pgjobs.attempts import Runner  # noqa: PLC0415 -- likewise

    Runner._or_end_the_worker = lambda _: suppress(BaseException)


FAULTS: dict[str, Callable[[], None]] = (
    statement_faults.FAULTS
    | connection_faults.FAULTS
    | supervisor_faults.FAULTS
    | atomic_faults.FAULTS
    | cancel_faults.FAULTS
    | retry_faults.FAULTS
    | role_faults.FAULTS
    | unique_faults.FAULTS
    | schedule_faults.FAULTS
    | sql_faults.FAULTS
    | limit_faults.FAULTS
    | ask_faults.FAULTS
    | admin_faults.FAULTS
    | pgmq_faults.FAULTS
    | testing_faults.FAULTS
    | task_faults.FAULTS
    | drain_faults.FAULTS
    | consumer_faults.FAULTS
    | {
        fault.__name__.replace("_", "-"): fault
        for fault in (
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
            limits_wait_for_any_room,
            calls_outlive_their_job,
            the_loop_ends,
            wake_ups_in_the_transaction,
            enqueued_outside,
            any_settle_was_ours,
            any_lease_is_safe,
            threads_end_unnoticed,
        )
    }
)
