"""What a handler is told of its own attempt, and can tell of it: `@job(takes_context=True)`.

Invariant: nothing here costs a statement but columns of `job` that the claim did not read; the worker
carries requests and progress for all of its handlers together.
"""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

from django_pgjobs.exceptions import InvalidOption, JobCancelled
from django_pgjobs.lines import Line, Progress
from django_pgjobs.texts import is_storable

if TYPE_CHECKING:
    from django_pgjobs.claims import Claim
    from django_pgjobs.models import Job

NO_ROW = 0  # the id of the job that perform() runs
LONGEST_TEXT = 200  # characters of what a handler says that it is at
_SLACK = 1e-9  # sums of fractions end a hair beside 1


class JobContext:
    """The attempt that a handler is in. Any thread or task of the handler may use it."""

    def __init__(self, claim: Claim, line: Line) -> None:
        """Speak of this claim, over this line to its worker."""
        self._claim = claim
        self._line = line

    def __repr__(self) -> str:
        return f"<JobContext of {self._claim.kind} #{self._claim.id}, attempt {self.attempt}>"

    @property
    def job_id(self) -> int:
        """The id of the job."""
        return self._claim.id

    @cached_property
    def job(self) -> Job:
        """The job, with what the claim has read; other columns are read when they are first used."""
        from django_pgjobs.models import Job  # noqa: PLC0415 -- no models before apps are loaded

        if self._line.job is not None:
            return self._line.job  # type: ignore[no-any-return]
        claim = self._claim
        known: dict[str, Any] = {  # in the order of the columns
            "id": claim.id,
            "kind": claim.kind,
            "queue": claim.queue,
            "payload": json.loads(claim.payload),
            "status": "running",
            "attempts": claim.attempts,
            "max_attempts": claim.max_attempts,
            "attempts_before": claim.attempts_before,
            "claims": claim.claims,
        }
        return Job.from_db(self._line.alias, list(known), list(known.values()))

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1; it goes on counting after a retry by hand."""
        return self._claim.attempts

    @property
    def cancelled(self) -> bool:
        """Whether the job is to stop, as far as its worker knows: it asks each POLL."""
        return self._line.asked

    def check(self) -> None:
        """Stop here if the job is to stop.

        Raises:
            JobCancelled: let it pass, and the job is `cancelled`.

        """
        if self.cancelled:
            raise JobCancelled

    def progress(self, fraction: float | Decimal | Real, text: str = "") -> None:
        """Say how far the handler is, for `job.meta["progress"]` and the admin.

        The worker writes the last one that was said: at most once a second, and at the end of the attempt.
        Not for atomic jobs, nor for those that are claimed by transaction: their rows show nothing until
        they are settled.

        Raises:
            InvalidOption: `fraction` is no number from 0 to 1, or `text` cannot be stored or is longer
                than 200 characters.

        """
        self._line.said = Progress(_check_fraction(fraction), _check_text(text))


def _check_fraction(fraction: object) -> float:
    is_number = isinstance(fraction, Real | Decimal) and not isinstance(fraction, bool)
    # Of a Decimal that is NaN even a comparison raises.
    with suppress(ArithmeticError):
        if is_number and -_SLACK <= fraction <= 1 + _SLACK:  # type: ignore[operator]  # false for NaN
            return min(max(float(fraction), 0.0), 1.0)  # type: ignore[arg-type]
    raise InvalidOption(
        f"fraction must be a number from 0 to 1, got {fraction!r:.80}. Divide what is done by all there is."
    )


def _check_text(text: object) -> str:
    if not isinstance(text, str) or len(text) > LONGEST_TEXT or not is_storable(text):
        raise InvalidOption(
            f"text must be a str of up to {LONGEST_TEXT} characters without NUL and lone surrogates, got "
            f"{text!r:.80}. Shorten it, or replace them."
        )
    return text
