"""Settle: write what became of claimed jobs, fenced and in batches.

Invariant: every write carries its claim's token. A stale one changes nothing: the job was reaped
and belongs to another claim, so its outcome is dropped and logged.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import django.db
import psycopg

from django_pgjobs import failures, statements
from django_pgjobs.sessions import Execute, Rows

if TYPE_CHECKING:
    # Not when it runs: tasks may be declared, and this be read, before there are models.
    from django_pgjobs.claims import Claim

logger = logging.getLogger(__name__)

# What the server says of a value that it cannot store. Results and errors are made storable where
# the job runs, so this is the last line of defence.
_REFUSED = (psycopg.DataError, django.db.DataError)


class Done(NamedTuple):
    """The handler returned; `result` is its value as JSON text, None for None."""

    claim: Claim
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed; `delay` is the time to the next one in seconds, None gives up.

    `interrupts`: the handler raised KeyboardInterrupt, which also asks the worker to stop.
    """

    claim: Claim
    error: dict[str, Any]
    delay: float | None = None
    interrupts: bool = False


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler asked to be run again after `delay` seconds; this was no attempt."""

    claim: Claim
    delay: float


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The handler stopped because its job is cancelled, by a request or by its own decision."""

    claim: Claim
    error: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Settled:
    """The handler returned, and the thread that ran it has written that already."""

    claim: Claim


NotDone = (
    Failed | Snoozed | Cancelled
)  # nothing of what the handler wrote in a transaction with it is kept
Outcome = Done | NotDone


class Left(NamedTuple):
    """What was not written: stale outcomes, dropped and logged, and those whose row was locked."""

    stale: Sequence[Outcome]
    locked: Sequence[Outcome]


def settle(execute: Execute, worker: int, outcomes: Iterable[Outcome]) -> Left:
    """Write `outcomes` of the worker's claims; say what was not written."""
    plain: list[Done] = []
    valued: list[Outcome] = []
    retried: list[Outcome] = []
    given_up: list[Outcome] = []
    snoozed: list[Outcome] = []
    stopped: list[Outcome] = []
    for outcome in outcomes:
        if isinstance(outcome, Done):
            (plain if outcome.result is None else valued).append(outcome)
        elif isinstance(outcome, Failed):
            (given_up if outcome.delay is None else retried).append(outcome)
        else:
            (snoozed if isinstance(outcome, Snoozed) else stopped).append(outcome)
    left: list[Outcome] = []
    plain.sort(key=lambda done: done.claim.claims)
    for claims, group in itertools.groupby(plain, key=lambda done: done.claim.claims):
        left += _complete(execute, worker, claims, list(group))
    left += _write(execute, worker, statements.COMPLETE_WITH_RESULT, valued)
    cancelled = [
        *_write(execute, worker, statements.RETRY, retried),
        *_write(execute, worker, statements.FAIL, given_up),
    ]
    left += _cancel(execute, worker, cancelled)
    left += _write(execute, worker, statements.SNOOZE, snoozed)
    left += _write(execute, worker, statements.STOP, stopped)
    return tell_apart(execute, worker, left)


def _cancel(execute: Execute, worker: int, failed: list[Outcome]) -> list[Outcome]:
    """Cancel what failed after a request to stop, and log that: its failure's own line says otherwise."""
    left = _write(execute, worker, statements.CANCEL, failed)
    unwritten = {outcome.claim.token for outcome in left}
    for outcome in failed:
        claim = outcome.claim
        if claim.token not in unwritten:
            text = "Job %s (%s) is cancelled after attempt %s: it was asked to stop before that failed."
            extra = {"job_id": claim.id, "kind": claim.kind, "attempt": claim.attempts}
            logger.info(text, claim.id, claim.kind, claim.attempts, extra=extra)
    return left


def split(outcomes: Sequence[Outcome]) -> tuple[list[Done], list[Outcome]]:
    """Tell those apart that a claim can settle with it: no result, and one number of claims."""
    plain = [o for o in outcomes if isinstance(o, Done) and o.result is None]
    claims = plain[0].claim.claims if plain else 0
    together = [done for done in plain if done.claim.claims == claims]
    chosen = set(map(id, together))
    return together, [outcome for outcome in outcomes if id(outcome) not in chosen]


def tell_apart(execute: Execute, worker: int, left: Sequence[Outcome]) -> Left:
    """Say of outcomes that were not written which are stale, and log that these are dropped.

    Neither stale nor locked is what had been written already, by a settle whose answer was lost.
    """
    if not left:
        return Left((), ())
    ids = [outcome.claim.id for outcome in left]
    rows = execute(statements.STANDING, {"worker": worker, "ids": ids})
    standing = {job: _Standing(*columns) for job, *columns in rows}
    stale, locked = [], []
    for outcome in left:
        claim = outcome.claim
        row = standing.get(claim.id, _GONE)
        if row.own and row.claims == claim.claims:
            locked.append(outcome)
            continue
        if row.shows(outcome):
            said = "Job %s (%s) was settled already: only the answer to that was lost."
        else:
            said = "The lease of job %s (%s) was lost: its outcome is dropped."
            stale.append(outcome)
        extra = {"job_id": claim.id, "kind": claim.kind, "worker_id": worker}
        logger.warning(said, claim.id, claim.kind, extra=extra)
    return Left(stale, locked)


class _Standing(NamedTuple):
    """What a row says of the outcome that could not be written to it."""

    claims: int = 0
    attempts: int = 0
    own: bool | None = None  # None where nobody holds it
    done: bool = False
    error: str | None = None  # the last one, as JSON

    def shows(self, outcome: Outcome) -> bool:
        """Whether this very claim has been settled by its worker, and not by a reaper."""
        if self.done:  # so it stays, and by this claim even where its worker took it for failed
            return self.claims == outcome.claim.claims
        if isinstance(outcome, Snoozed):  # which alone gives the attempt of this claim back
            given_back = (outcome.claim.claims, outcome.claim.attempts - 1)
            return self.own is None and (self.claims, self.attempts) == given_back
        if isinstance(outcome, Done) or self.error is None:
            return False
        noted = json.loads(self.error)  # ours, and the time, if SQL has put nothing else there
        return isinstance(noted, dict) and outcome.error.items() <= noted.items()


_GONE = _Standing()


def _complete(execute: Execute, worker: int, claims: int, group: list[Done]) -> list[Outcome]:
    ids = [done.claim.id for done in group]
    rows = execute(statements.COMPLETE, {"worker": worker, "claims": claims, "ids": ids})
    return _unsettled(group, rows)


def _write(
    execute: Execute, worker: int, statement: str, outcomes: Sequence[Outcome]
) -> list[Outcome]:
    """Run one statement for `outcomes`; halve a batch that the server refuses until one is left."""
    if not outcomes:
        return []
    try:
        rows = execute(statement, _params(worker, outcomes))
    except _REFUSED as error:
        if len(outcomes) == 1:
            rows = _fail_unstorable(execute, worker, outcomes[0], error)
        else:
            half = len(outcomes) // 2
            return [
                *_write(execute, worker, statement, outcomes[:half]),
                *_write(execute, worker, statement, outcomes[half:]),
            ]
    return _unsettled(outcomes, rows)


def _fail_unstorable(execute: Execute, worker: int, outcome: Outcome, error: Exception) -> Rows:
    claim = outcome.claim
    logger.error("The outcome of job %s cannot be stored: %s", claim.id, error)
    entry = failures.entry(error, attempt=claim.attempts, worker=str(worker))
    return execute(statements.FAIL, _params(worker, [Failed(claim, entry)]))


def _params(worker: int, outcomes: Sequence[Outcome]) -> dict[str, object]:
    rows = "[{}]".format(",".join(map(_row, outcomes)))
    return {"worker": worker, "rows": rows, "ids": [outcome.claim.id for outcome in outcomes]}


def _row(outcome: Outcome) -> str:
    claim = outcome.claim
    if isinstance(outcome, Done):  # the result is JSON text already
        return f'{{"id":{claim.id},"claims":{claim.claims},"result":{outcome.result}}}'
    row: dict[str, Any] = {"id": claim.id, "claims": claim.claims}
    if not isinstance(outcome, Cancelled):
        row["delay"] = outcome.delay
    if not isinstance(outcome, Snoozed):
        row |= {"last_error": failures.summary(outcome.error), "error": outcome.error}
    return json.dumps(row)


def _unsettled(outcomes: Sequence[Outcome], rows: Rows) -> list[Outcome]:
    settled = set(rows)
    return [o for o in outcomes if o.claim.token not in settled]
