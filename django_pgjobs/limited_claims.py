"""Claim jobs with a key, and those of limited queues: when to look, where, and how many to take.

A look has two parts. The first finds, in a statement that changes nothing, lanes with a free slot: keys
are visited in turn, from the place where the last look ended. The second, in a transaction that is one
message, locks their gates, counts, and claims. A worker looks when a full claim has found that such jobs
wait, when one of its own has ended, and when a token is due.

Invariant: what this worker's code and settings say of a limit is never exceeded by its claims; a
worker makes no statement more while no such job exists.
"""

from __future__ import annotations

import json
import math
import random
import secrets
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg.errors import LockNotAvailable

from django_pgjobs import conf, gates, limited_lanes, registry
from django_pgjobs.claims import Claim, Served
from django_pgjobs.limits import rate_rule
from django_pgjobs.sessions import Executor

_START = ("", "")
_PATIENCE = 1.0  # seconds to wait for who enters the same gate for the first time
_MICROSECONDS = 1_000_000
_MOST = (
    100  # jobs that one look claims: its cost grows by it, and so does the time that others wait
)


class _Lane(NamedTuple):
    n: int  # how many lanes were passed, this one included
    queue: str
    key: str | None
    kind: str | None
    priority: int | None
    ordered: bool
    free: bool
    wait: float | None  # microseconds until the rate allows one


class LimitedClaimer:
    """Claims what has limits, for one worker."""

    def __init__(
        self,
        worker: int,
        served: Served,
        *,
        rates: bool = True,
        kinds: Sequence[str] | None = None,
        among: bool = True,
    ) -> None:
        """Read the limits that the code and the settings declare for what is served.

        Where `kinds` are given, it claims jobs whose kind is `among` them, or is not.
        """
        queues = [name for name in conf.get().limited_queues if served.includes(name)]
        everything = served.queues is None
        self._limited = frozenset(queues)
        without = {} if rates else rate_rule(None)
        find, among_due = (
            limited_lanes.find(all_queues=everything, among_due=due) for due in (False, True)
        )
        self._find, self._find_among_due = (
            gates.of_sort(find, kinds),
            gates.of_sort(among_due, kinds),
        )
        self._claim = gates.of_sort(gates.CLAIM, kinds)
        self._params = {
            "worker": worker,
            "lease": conf.get().lease,
            "kinds": None if kinds is None else list(kinds),
            "among": among,
            "queues": list(served.queues or ()),
            "exclude": list(served.exclude),
            "rules": json.dumps([rule | without for rule in _rules()]),
            "limited": json.dumps([queue_rule(name) | without for name in queues]),
        }
        self._place = _START  # queue and key of the lane that was visited last
        self._clean = True  # whether this round of all keys began at their start, and found nothing
        self._held: set[int] = set()
        self._next = math.inf  # when to look, by the monotonic clock
        self._token = math.inf  # when the first token is due of those found wanting in this round
        self._soonest = 0.0  # what the cost of the last look allows
        self.swept = False  # whether the last look found nothing up to the end of all keys
        self.exhausted = True  # whether nothing can be claimed before something else changes

    @property
    def seconds(self) -> float:
        """How long until the next look: 0 if it is due, infinity if nothing is known to wait."""
        return max(0.0, self._next - time.monotonic())

    def note_survey(self, due: float, *, at_once: bool) -> None:
        """Take note of what a full claim has seen: in how many seconds such a job is due."""
        if due <= 0:
            self._look_by(0.0 if at_once else self._soonest)
        else:
            self._next, self.exhausted = time.monotonic() + due, True

    def let_go(self, job: int) -> bool:
        """Take note that a job has ended; say whether it had a slot here, which somebody may have now."""
        held = job in self._held
        if held:
            self._held.remove(job)
            self.look_now()
        return held

    def look_now(self) -> None:
        """Take note that something may be claimed."""
        self._look_by(0.0)

    def claim(self, session: Executor, limit: int) -> list[Claim]:
        """Claim up to `limit` jobs, and no more than a look may."""
        began, limit = time.monotonic(), min(limit, _MOST)
        self._next = math.inf
        lanes = self._visit(session, limit)
        claimed = self._take(session, lanes, limit) if lanes else []
        self._held.update(claim.id for claim in claimed)
        cost = time.monotonic() - began
        self._soonest = began + 10 * cost  # for looks on suspicion: others wait while this one runs
        self._clean = self._clean and not claimed
        self.swept = not claimed and self._place == _START
        if claimed:
            self._look_by(began)
        elif not self.swept:
            self._look_by(began + 4 * cost)
        elif lanes:  # others were at these gates
            self._look_by(self._soonest)
        elif self._token < math.inf:
            self._look_by(max(self._token, began + cost))
        self.exhausted = self._next == math.inf
        return claimed

    def _look_by(self, when: float) -> None:
        self._next = min(self._next, when)
        self.exhausted = False

    def _visit(self, session: Executor, limit: int) -> list[_Lane]:
        """Find lanes; at the end of all keys go on from their start, once.

        Where many were passed in vain, as those are whose jobs are all delayed, what is due tells more.
        """
        lanes = self._visit_from_place(session, limit)
        if not lanes and self._place == _START and not self._clean:
            lanes = self._visit_from_place(session, limit)
        if not lanes and self._place != _START:
            lanes = self._visit_due(session, limit)
        return lanes

    def _visit_due(self, session: Executor, limit: int) -> list[_Lane]:
        params = {"limit": limit, **self._params}
        lanes = [_Lane(*row) for row in session.execute(self._find_among_due, params)]
        free = self._free(lanes)
        if not free and all(lane.n < limited_lanes.SCAN for lane in lanes):
            self._place, self._clean = _START, True  # there are no others
        return free

    def _visit_from_place(self, session: Executor, limit: int) -> list[_Lane]:
        if self._place == _START:
            self._clean, self._token = True, math.inf
        from_queue, from_key = self._place
        params = {"from_queue": from_queue, "from_key": from_key, "limit": limit, **self._params}
        lanes = [_Lane(*row) for row in session.execute(self._find, params)]
        keyed = [lane for lane in lanes if lane.n]
        last = keyed[-1] if keyed else None
        if last is not None and (len(keyed) == limit or last.n == limited_lanes.SCAN):
            self._place = (last.queue, last.key or "")
        else:
            self._place = _START
        return self._free(lanes)

    def _free(self, lanes: Sequence[_Lane]) -> list[_Lane]:
        """Return those of which jobs may start now, and note when the first of the others may."""
        waits = [float(lane.wait) / _MICROSECONDS for lane in lanes if lane.wait]
        self._token = min([self._token, *(time.monotonic() + wait for wait in waits)])
        return _mixed([lane for lane in lanes if lane.free and not lane.wait])

    def _take(self, session: Executor, lanes: Sequence[_Lane], limit: int) -> list[Claim]:
        names = {f"queue:{lane.queue}" for lane in lanes if lane.queue in self._limited}
        names |= {f"key:{lane.key}" for lane in lanes if lane.key is not None}
        positions = [{"position": n, **lane._asdict()} for n, lane in enumerate(lanes)]
        params = {
            **self._params,
            "visit": secrets.randbits(62),
            "gates": sorted(names),
            "lanes": json.dumps(positions, default=float),
            "limit": limit,
        }
        statements = (gates.ENTER, gates.LOCK, self._claim)
        try:
            return [Claim(*row) for row in session.execute_all(statements, params, _PATIENCE)]
        except LockNotAvailable:
            return []


def declared(served: Served) -> list[str]:
    """Name the kinds and queues among those served that have limits."""
    kinds = registry.kinds().values()
    limited = {
        f"the kind {k.kind!r}" for k in kinds if k.limits and served.includes(k.options.queue)
    }
    queues = {f"the queue {name!r}" for name in conf.get().limited_queues if served.includes(name)}
    return sorted(limited | queues)


def _mixed(lanes: list[_Lane]) -> list[_Lane]:
    """Put lanes of limited queues anywhere among those of keys, so that neither is always first."""
    keyed = [lane for lane in lanes if lane.n]
    for lane in lanes:
        if not lane.n:
            keyed.insert(random.randint(0, len(keyed)), lane)  # noqa: S311 -- no secret
    return keyed


def _rules() -> list[dict[str, Any]]:
    return [
        job_type.limits.rule(kind) for kind, job_type in registry.kinds().items() if job_type.limits
    ]


def queue_rule(name: str) -> dict[str, Any]:
    """Return what the claim must know of a queue with a limit in the settings."""
    options = conf.get().queues[name]
    return {"name": name, "slots": options.get("concurrency"), **rate_rule(options.get("rate"))}
