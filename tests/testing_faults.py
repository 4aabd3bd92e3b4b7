"""Faults to plant into what projects test with: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Value


def drains_ignore_kinds() -> None:
    """Run jobs of all kinds."""
    from django_pgjobs.testing import draining  # noqa: PLC0415 -- no models before the apps are loaded

    draining.names_of_all = lambda _: None


def jobs_put_off_stay_so() -> None:
    """Leave the jobs of other kinds in the far future."""
    from django_pgjobs.testing import draining  # noqa: PLC0415 -- likewise

    @contextmanager
    def put_off(others: Any) -> Iterator[None]:
        others.update(run_at=datetime(2999, 1, 1, tzinfo=UTC))
        yield

    draining._put_off = put_off


def drains_see_the_lanes_of_the_first_claim() -> None:
    """Look at no queue and no priority that a job has brought up."""
    from django_pgjobs.claims import Claimer  # noqa: PLC0415 -- likewise

    Claimer.forget = lambda _: None


def drains_end_between_two_looks() -> None:
    """Let no job become due after the claim that found none."""
    from django_pgjobs.testing import draining  # noqa: PLC0415 -- likewise

    def travel_and_claim(source: Any) -> Any:
        claims = source.claim()
        while not claims and draining.travel_to_next(source._jobs):
            claims = source.claim()
        return claims

    draining._Source.travel_and_claim = travel_and_claim


def callbacks_of_handlers_are_left() -> None:
    """Leave what a handler has given to on_commit() to the test's own transaction, too."""
    from django.test import TestCase  # noqa: PLC0415 -- likewise

    from django_pgjobs.testing import runs  # noqa: PLC0415 -- likewise

    runs._committing = lambda alias: TestCase.captureOnCommitCallbacks(using=alias, execute=True)


def refutations_know_any_argument_of_a_task() -> None:
    """Let a payload be refuted that no call of a task has."""
    from django_pgjobs.testing import expectations  # noqa: PLC0415 -- likewise

    expectations.type_of = lambda _: None


def assertions_match_anything() -> None:
    """Find no difference between a job and what is expected."""
    from django_pgjobs.testing.expectations import Expected  # noqa: PLC0415 -- likewise

    Expected.differences = lambda *_: []


def refutations_know_any_kind() -> None:
    """Let a kind be refuted that is misspelt."""
    from django_pgjobs import registry  # noqa: PLC0415 -- likewise

    registry.get_job = registry.find


def failures_are_texts_alone() -> None:
    """Lose the exception that a handler raised."""
    from django_pgjobs.deadlines import Deadline  # noqa: PLC0415 -- likewise
    from django_pgjobs.testing.runs import Witness  # noqa: PLC0415 -- likewise

    Witness.verdict = Deadline.verdict


def immediate_jobs_run_in_blocks() -> None:
    """Run jobs before they are committed."""
    from django_pgjobs.testing.immediacy import _Worker  # noqa: PLC0415 -- likewise

    _Worker._is_outside = lambda *_: True


def all_is_made_due() -> None:
    """Give jobs that are due already a new time, too."""
    from django_pgjobs.models import JobQuerySet  # noqa: PLC0415 -- likewise

    JobQuerySet.delayed = JobQuerySet.pending


def time_jumps_to_the_end() -> None:
    """Make all delayed jobs due together."""
    from django_pgjobs.testing import draining, times  # noqa: PLC0415 -- likewise

    draining.travel_to_next = lambda jobs: times.make_due(jobs) > 0


def days_follow_the_clocks() -> None:
    """Let days pass that have 23 hours or 25."""
    from django_pgjobs.testing import times  # noqa: PLC0415 -- likewise

    times.Func = lambda seconds, **_: Value(timedelta(seconds=seconds.value))


def any_payload_is_performed() -> None:
    """Run a handler with arguments that an enqueue would refuse."""
    from django_pgjobs.signatures import Signature  # noqa: PLC0415 -- likewise

    Signature.bind = lambda _self, _kind, _args, kwargs: dict(kwargs)


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        drains_ignore_kinds,
        jobs_put_off_stay_so,
        drains_see_the_lanes_of_the_first_claim,
        drains_end_between_two_looks,
        callbacks_of_handlers_are_left,
        refutations_know_any_argument_of_a_task,
        assertions_match_anything,
        refutations_know_any_kind,
        failures_are_texts_alone,
        immediate_jobs_run_in_blocks,
        all_is_made_due,
        time_jumps_to_the_end,
        days_follow_the_clocks,
        any_payload_is_performed,
    )
}
