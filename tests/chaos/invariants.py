"""What must be true of any history, however much was broken meanwhile.

Each check yields a sentence for each violation. They are asked after everything has drained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import combinations

from tests import audit
from tests.app.mixed_rules import MOST
from tests.chaos import overtaking, rules
from tests.chaos.history import Body, Claim, History, Life

Check = Callable[[History], Iterator[str]]
FINAL = ("done", "failed", "cancelled")
_CLOCKS = 0.002  # seconds: the ledger's numbers are rounded


def no_acknowledged_job_is_lost(history: History) -> Iterator[str]:
    """What was committed is there and final."""
    for key, meant in history.meant.items():
        found = [f"{key}.{n}" for n in range(meant.jobs) if f"{key}.{n}" in history.lives]
        if meant.fate == "committed" and len(found) != meant.jobs:
            yield f"{key} was committed with {meant.jobs} jobs, and {len(found)} are there"
    for key, life in history.lives.items():
        if life.row["status"] not in FINAL:
            yield f"{key} is {life.row['status']} at the end"


def no_job_without_its_transaction(history: History) -> Iterator[str]:
    """What was rolled back left no row and never started."""
    for key in history.homeless:
        yield f"{key} started and is no job"
    for key in (key for life in history.lives.values() for key in life.keys):
        meant = history.meant.get(key.rpartition(".")[0])
        if meant is None or meant.fate == "rolled-back":
            yield f"{key} is there, and its transaction was rolled back"


def a_job_is_there_if_its_business_is(history: History) -> Iterator[str]:
    """Once, whatever became of a commit that was not acknowledged."""
    for key in history.doubled:
        yield f"{key} is there more than once"
    for key, meant in history.meant.items():
        there = sum(f"{key}.{n}" in history.lives for n in range(meant.jobs))
        if there != (meant.jobs if key in history.business else 0):
            yield f"{key} has {there} of {meant.jobs} jobs, business: {key in history.business}"


def nothing_starts_before_its_time(history: History) -> Iterator[str]:
    """Not before the enqueue was committed, nor before the claim was, nor before run_at."""
    for key, life in history.lives.items():
        for body in life.bodies:
            claim = _claim_of(history, life, body)
            if body.start < life.inserted - _CLOCKS:
                yield f"{key} started {life.inserted - body.start:.3f} s before its commit"
            if claim is None:
                yield f"{key} started in process {body.pid}, which had not claimed it"
        run_at = -math.inf
        for change in life.changes:
            if change.new == "running" and change.old == "pending":
                if change.at.timestamp() < run_at:
                    yield f"{key} was claimed before its run_at"
            elif change.run_at:
                run_at = change.run_at.timestamp()


def one_holder(history: History) -> Iterator[str]:
    """Two bodies of a job overlap only if the earlier lease had ended before the later claim."""
    for key, life in history.lives.items():
        for one, other in combinations(life.bodies, 2):
            claims = _claim_of(history, life, one), _claim_of(history, life, other)
            if None in claims or one.end <= other.start or other.end <= one.start:
                continue
            first, second = sorted(claims, key=lambda claim: claim.at if claim else 0.0)
            assert first
            assert second
            if first == second:
                yield f"{key} was started twice by one claim"
            elif not history.deaths.get(first.worker, math.inf) <= second.at:
                yield f"{key} runs for worker {second.worker} while {first.worker} held it and lived"


def the_last_token_wins(history: History) -> Iterator[str]:
    """What is done was done by its last claim, and a handler had come to its end."""
    for key, life in history.lives.items():
        if life.row["status"] != "done" or life.of_a_tick:
            continue
        ended = {body.pid for body in life.bodies if body.how == "end"}
        last = life.claims[-1]
        pid = (life.row["result"] or {}).get("pid")
        if pid not in ended:
            yield f"{key} is done, and no handler of process {pid} came to its end"
        elif last.worker not in history.workers[pid]:
            yield f"{key} has the result of process {pid}, and worker {last.worker} held it last"


def attempts_are_honest(history: History) -> Iterator[str]:
    """attempts = claims - what was given back, each start is covered by one, each lost one is told."""
    for key, life in history.lives.items():
        row, starts = life.row, len(life.bodies)
        released = sum(bool(change.given_back) for change in life.changes)
        if (row["claims"], row["attempts"]) != (len(life.claims), len(life.claims) - released):
            yield f"{key} counts {row['attempts']} attempts and {row['claims']} claims, not {len(life.claims)} less {released}"
        # Who replaces a job gives it another fate: the one before may have been to snooze.
        snoozes = released if row["payload"].get("fate") == "snoozes" or len(life.keys) > 1 else 0
        if starts > row["attempts"] + snoozes:
            yield f"{key} started {starts} times in {row['attempts']} attempts"
        told = [error["attempt"] for error in row["errors"]]
        failed = row["attempts"] - (row["status"] == "done")
        if told != list(range(1, failed + 1))[-25:]:
            yield f"{key} tells of the attempts {told} of {row['attempts']}, and is {row['status']}"


def nobody_innocent_fails(history: History) -> Iterator[str]:
    """Only what always fails, or kills its worker, is given up, in as many attempts.

    And only what somebody wanted to cancel is cancelled.
    """
    for key, life in history.lives.items():
        fate = life.row["payload"].get("fate", "works")
        innocent = fate not in ("fails", "kills")
        cancelled = life.row["status"] == "cancelled" and life.row["cancel_requested_at"]
        if (life.row["status"] == "done") != innocent and not cancelled:
            yield f"{key}, which {fate}, is {life.row['status']}: {life.row['last_error']}"
        if len(life.bodies) > MOST[fate]:
            yield f"{key}, which {fate}, started {len(life.bodies)} times"


def only_lawful_moves(history: History) -> Iterator[str]:
    """The life of each job is one that the lifecycle knows."""
    for key, life in history.lives.items():
        try:
            audit.assert_lawful_life(life.changes)
        except AssertionError as error:
            yield f"{key} lived against the law: {error}"


CHECKS: dict[str, Check] = {
    "I1": no_acknowledged_job_is_lost,
    "I2": no_job_without_its_transaction,
    "I3": a_job_is_there_if_its_business_is,
    "I4": nothing_starts_before_its_time,
    "I5": one_holder,
    "I6, I8": the_last_token_wins,
    "I7": attempts_are_honest,
    "I7, I17": nobody_innocent_fails,
    "I10": only_lawful_moves,
    "I14": overtaking.nothing_is_overtaken_for_long,
    **rules.CHECKS,
}


def violations(history: History) -> list[str]:
    """Ask all of them."""
    return [f"{name}: {said}" for name, check in CHECKS.items() for said in check(history)]


def _claim_of(history: History, life: Life, body: Body) -> Claim | None:
    """Return the claim by which this body ran: the last one of its process before it."""
    workers = history.workers[body.pid]
    own = [c for c in life.claims if c.worker in workers and c.committed <= body.start + _CLOCKS]
    return own[-1] if own else None
