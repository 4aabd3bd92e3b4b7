"""Why a job is not running: one answer, by the database's clock and what living workers have said.

The limits that count are those that the latest worker which serves the queue wrote down at its start, so
that it takes no handler code to ask.

Invariant: of all that stands in a job's way the answer names what has to go before anything else matters, in
the order of `_PENDING`; it changes nothing, and what it counts it counts no further than `MOST`.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from django.db import OperationalError, transaction
from psycopg.errors import LockNotAvailable

from django_pgjobs import conf, obstacles
from django_pgjobs.explanations import MOST, Explanation
from django_pgjobs.lifecycle import FINAL, Status
from django_pgjobs.sessions import Execute, execute_on_django

_NAMED = 5  # of the jobs that hold a key
_LOOKS = 3  # at a row that seems to be locked, where nobody is found who did it


class _Standing(NamedTuple):
    """What STANDING says."""

    kind: str
    queue: str
    status: str
    key: str | None
    attempts: int
    run_at: datetime.datetime
    delayed: bool
    locked_at: datetime.datetime | None
    old: bool | None
    locked_by: int | None
    cancel_requested_at: datetime.datetime | None
    finished_at: datetime.datetime | None
    last_error: str
    unregistered: bool
    silent: bool | None
    worker: str | None
    paused_at: datetime.datetime | None
    paused_by: str | None
    read_only: bool
    living: int
    serving: int
    by_lease: int
    knowing: int
    kinds: str | None
    limited: str | None

    @property
    def rules(self) -> dict[str, Any]:
        """The limits of each kind that the latest worker knows; of what it does not know, none."""
        return _record(json.loads(self.kinds or "null"))

    @property
    def queue_rule(self) -> dict[str, Any]:
        """The limits of its queue."""
        return _record(_record(json.loads(self.limited or "null")).get(self.queue))

    @property
    def rule(self) -> dict[str, Any]:
        """The limits of its kind."""
        return _record(self.rules.get(self.kind))


class _Asked(NamedTuple):
    """One question: about which job, whom to ask, and what is known of it."""

    id: int
    execute: Execute
    it: _Standing


_Answer = Explanation | None


def explain(job_id: int, alias: str) -> Explanation:
    """Say of one job why it is not running, as its row stands now."""
    for _look in range(_LOOKS):
        try:
            answer = _look_at(job_id, alias)
        except OperationalError as error:
            if isinstance(error.__cause__, LockNotAvailable):
                return Explanation("table_locked")
            raise
        # Locked by nobody: its row has just changed hands, as by a claim, so what was read of it is old.
        if answer.answer != "locked" or answer.facts["process"] is not None:
            break
    return answer


def _look_at(job_id: int, alias: str) -> Explanation:
    execute = execute_on_django(alias)
    with transaction.atomic(using=alias):
        execute(obstacles.SETTINGS, {})
        rows = execute(obstacles.STANDING, {"id": job_id, "lease": conf.get().lease})
        answer = _explain(_Asked(job_id, execute, _Standing._make(rows[0]))) if rows else None
        # The lock that was tried goes, and what was set: to the savepoint, where there is one.
        transaction.set_rollback(True, using=alias)
    return answer or Explanation("gone")


def _explain(asked: _Asked) -> Explanation:
    it = asked.it
    if it.status in FINAL:
        return _finished(it)
    if it.status == Status.RUNNING:
        return _running(it)
    if it.status != Status.PENDING:
        return Explanation("blocked")
    found = (answer for find in _PENDING if (answer := find(asked)))
    return next(found, None) or _next(asked)


# ------------------------------------------------------------------------------------ not waiting


def _finished(it: _Standing) -> Explanation:
    facts: dict[str, Any] = {"at": it.finished_at}
    if it.status == Status.FAILED:
        facts |= {"attempt": it.attempts, "error": it.last_error.partition("\n")[0]}
    return Explanation(it.status, facts)


def _running(it: _Standing) -> Explanation:
    facts = {"worker": it.worker, "worker_id": it.locked_by, "at": it.locked_at}
    if it.silent or (it.unregistered and it.old):
        return Explanation("lost", facts)
    if it.cancel_requested_at:
        return Explanation("stopping", {**facts, "asked": it.cancel_requested_at})
    return Explanation("running", facts)


# ---------------------------------------------------------------------------------------- waiting


def _delayed(asked: _Asked) -> _Answer:
    it = asked.it
    facts = {"until": it.run_at, "attempt": it.attempts + 1}
    return Explanation("delayed", facts) if it.delayed else None


def _locked(asked: _Asked) -> _Answer:
    """Try to lock the row, as a claim would."""
    params = {"id": asked.id}
    if asked.it.read_only or asked.execute(obstacles.PROBE, params):
        return None
    rows = asked.execute(obstacles.LOCKED_BY, params)
    process, since = rows[0] if rows else (None, None)
    by_transaction = asked.it.by_lease < asked.it.serving
    facts = {"process": process, "at": since, "by_transaction": by_transaction}
    return Explanation("locked", facts)


def _paused(asked: _Asked) -> _Answer:
    it = asked.it
    facts = {"queue": it.queue, "at": it.paused_at, "by": it.paused_by or None}
    return Explanation("paused", facts) if it.paused_at else None


def _unserved(asked: _Asked) -> _Answer:
    it = asked.it
    if not it.serving:
        return Explanation("unserved", {"queue": it.queue, "living": it.living})
    if it.key is not None and not it.by_lease:
        return Explanation("keys_unserved", {"queue": it.queue, "key": it.key})
    return None


def _unknown(asked: _Asked) -> _Answer:
    return None if asked.it.knowing else Explanation("unknown_kind", {"kind": asked.it.kind})


def _limited(asked: _Asked) -> _Answer:
    """Hold the rules against the running jobs and the gates; without a rule there is nothing to ask."""
    it = asked.it
    if it.key is None and not it.queue_rule:
        return None
    params = {"key": it.key, "queue": it.queue, "most": MOST}
    [row] = asked.execute(obstacles.HOLDS, params)
    of_key, of_queue, key_next, key_rates, queue_next, queue_rates, first, now = row
    every = it.queue_rule.get("every")
    key_next = _reached(key_next, key_rates, [_made_by(kind, it) for kind in it.rules])
    queue_next = _reached(queue_next, queue_rates, [f" {every}"])
    in_key = [(job, kind) for job, kind in json.loads(of_key or "[]")]
    in_queue = json.loads(of_queue or "[]")
    return (
        _slots("key_limit", {"key": it.key}, [job for job, _kind in in_key], _allowed(it, in_key))
        or _order(asked, first)
        or _rate("key_rate", {"key": it.key}, it.rule, key_next, now)
        or _slots("queue_limit", {"queue": it.queue}, in_queue, it.queue_rule.get("slots"))
        or _rate("queue_rate", {"queue": it.queue}, it.queue_rule, queue_next, now)
    )


def _allowed(it: _Standing, running: list[tuple[int, str]]) -> int | None:
    """Return how many of its key may run: the smallest limit of its kind and of those at work."""
    if it.key is None:
        return None
    kinds = {it.kind, *(kind for _job, kind in running)}
    # A key whose kind declares nothing is one job at a time.
    limits = [(_record(it.rules.get(kind)) or {"slots": 1}).get("slots") for kind in kinds]
    return min((limit for limit in limits if limit is not None), default=None)


def _slots(answer: str, of: dict[str, Any], running: list[int], allowed: int | None) -> _Answer:
    if allowed is None or len(running) < allowed:
        return None
    facts = {"running": len(running), "limit": allowed, "held_by": sorted(running)[:_NAMED]}
    return Explanation(answer, {**of, **facts})


def _order(asked: _Asked, first: int | None) -> _Answer:
    if not asked.it.rule.get("ordered") or first in (None, asked.id):
        return None
    return Explanation("order", {"key": asked.it.key, "job": first})


def _made_by(kind: str, it: _Standing) -> str:
    return f"{kind} {_record(it.rules[kind]).get('every')}"


def _reached(
    next_at: datetime.datetime | None, rates: str | None, declared: list[str]
) -> datetime.datetime | None:
    """Return the time that these rates have reached at a gate: others are not declared any more."""
    made = _record(json.loads(rates or "null"))
    behind = [made[rate] for rate in declared if rate in made]
    if next_at is None or (made and not behind):
        return None
    return next_at - datetime.timedelta(microseconds=float(min(behind, default=0)))


def _rate(
    answer: str,
    of: dict[str, Any],
    rule: dict[str, Any],
    reached: datetime.datetime | None,
    now: datetime.datetime,
) -> _Answer:
    """Say when the next start is, where a rate has reached a time that is too far ahead of now."""
    if not rule.get("every") or reached is None:
        return None
    until = reached - datetime.timedelta(microseconds=rule["every"] * rule["burst"])
    return Explanation(answer, {**of, "until": until}) if until > now else None


def _next(asked: _Asked) -> Explanation:
    it = asked.it
    statement = obstacles.AHEAD
    if it.key is not None:
        ordered = it.rule.get("ordered")
        statement = obstacles.AHEAD_IN_ORDER if ordered else obstacles.AHEAD_IN_KEY
    params = {"id": asked.id, "most": MOST, "lease": conf.get().lease}
    [(behind, first)] = asked.execute(statement, params)
    workers = {"workers": it.serving, "unknowing": it.serving - it.knowing}
    return Explanation("next", {"behind": behind, **workers, "key": it.key, "first": first})


_PENDING: tuple[Callable[[_Asked], _Answer], ...] = (
    _delayed,
    _locked,
    _paused,
    _unserved,
    _unknown,
    _limited,
)


def _record(value: Any) -> dict[str, Any]:
    """Read a JSON object; plain SQL may have put anything there, which is as good as none."""
    return value if isinstance(value, dict) else {}
