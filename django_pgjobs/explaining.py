"""Why a job is not running: one answer, by the database's clock and what living workers have said.

The limits that count are those that the latest worker which serves the queue wrote down at its start, so
that it takes no handler code to ask.

Invariant: of all that stands in a job's way the answer names what holds it up longest for certain, in the
order of `_PENDING`; it changes nothing, and what it counts it counts no further than `MOST`.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from django_pgjobs import conf, obstacles
from django_pgjobs.lifecycle import FINAL, Status
from django_pgjobs.sessions import Execute, execute_on_django

MOST = 1_000  # jobs that are counted before one, and running ones that are looked at
_NAMED = 5  # of the jobs that hold a key

_TEXTS = {
    "gone": _("There is no such job any more."),
    "done": _("It is done, since %(at)s."),
    "failed": _("It was given up at %(at)s, after attempt %(attempt)s: %(error)s"),
    "cancelled": _("It was cancelled at %(at)s."),
    "blocked": _("It waits for other jobs."),
    "running": _("It is running on the worker %(worker)s, since %(at)s."),
    "stopping": _(
        "It is running on the worker %(worker)s, since %(at)s, and was asked to stop at %(asked)s."
    ),
    "lost": _(
        "Its worker %(worker)s is dead or silent. The next worker or reapjobs that looks takes the job back."
    ),
    "delayed": _("It is not due before %(until)s, for attempt %(attempt)s."),
    "locked": _(
        "A transaction has locked its row, in the server's process %(process)s since %(at)s: that of a worker "
        "which is running it, or of somebody who is changing it."
    ),
    "paused": _("Its queue, %(queue)s, is paused since %(at)s (by: %(by)s)."),
    "unserved": _("None of the %(living)s living workers serves its queue, %(queue)s."),
    "keys_unserved": _(
        "It has a key, %(key)s, and its queue, %(queue)s, is claimed by transaction, where no job with a "
        "key is claimed."
    ),
    "unknown_kind": _(
        "No living worker that serves its queue knows its kind, %(kind)s. Whichever claims it fails it at once."
    ),
    "key_limit": _(
        "Its key, %(key)s, has %(running)s running jobs and may have %(limit)s. It is held by: %(held_by)s."
    ),
    "order": _(
        "The jobs of its key, %(key)s, run in order, and job %(job)s before it has not come to its end."
    ),
    "key_rate": _("The rate of its key, %(key)s, allows the next start at %(until)s."),
    "queue_limit": _(
        "Its queue, %(queue)s, has %(running)s running jobs and may have %(limit)s. It is held by: %(held_by)s."
    ),
    "queue_rate": _("The rate of its queue, %(queue)s, allows the next start at %(until)s."),
}
ANSWERS = (*_TEXTS, "next")


@dataclass(frozen=True)
class Explanation:
    """Why a job is not running, or what else is true of it."""

    answer: str  # one of `ANSWERS`
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """A sentence or two, in the language that is active."""
        shown = {name: _shown(value) for name, value in self.facts.items()}
        if self.answer == "next":
            return f"{_in_line(self.facts['behind'])} {_served(self.facts['workers'])}"
        return str(_TEXTS[self.answer] % shown)

    def __str__(self) -> str:
        return self.text


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
    execute = execute_on_django(alias)
    with transaction.atomic(using=alias):
        execute(obstacles.BY_INDEX, {})
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
    return Explanation("locked", {"process": process, "at": since})


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
    of_key, of_queue, key_next, queue_next, first, now = row
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
    [(behind,)] = asked.execute(statement, params)
    return Explanation("next", {"behind": behind, "workers": it.serving})


_PENDING: tuple[Callable[[_Asked], _Answer], ...] = (
    _delayed,
    _locked,
    _paused,
    _unserved,
    _unknown,
    _limited,
)

# ------------------------------------------------------------------------------------------ words


def _in_line(behind: int) -> str:
    if behind >= MOST:
        return ngettext(
            "It is due, and in line behind %(count)s job or more.",
            "It is due, and in line behind %(count)s jobs or more.",
            behind,
        ) % {"count": f"{behind:,}"}
    if behind:
        return ngettext(
            "It is due, and in line behind %(count)s job.",
            "It is due, and in line behind %(count)s jobs.",
            behind,
        ) % {"count": behind}
    return str(_("It is due, and the next in line."))


def _served(workers: int) -> str:
    return ngettext(
        "%(count)s living worker serves its queue.",
        "%(count)s living workers serve its queue.",
        workers,
    ) % {"count": workers}


def _shown(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        here = timezone.localtime(value) if timezone.is_aware(value) else value
        return f"{here:%Y-%m-%d %H:%M:%S %Z}".rstrip()
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "–" if value is None else str(value)  # noqa: RUF001 -- an en dash stands for nothing


def _record(value: Any) -> dict[str, Any]:
    """Read a JSON object; plain SQL may have put anything there, which is as good as none."""
    return value if isinstance(value, dict) else {}
