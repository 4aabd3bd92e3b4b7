"""What the rows must say: the lifecycle, the keys and the limits once more, in a few lines of Python.

It knows no database and shares no code with the product. Time is a number that the test moves on, in
milliseconds; a row that must not be there, or a claim that must not be made, is an AssertionError.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import NamedTuple

SECOND = 1_000
HALF, HOUR = 1_800 * SECOND, 3_600 * SECOND
KEPT = HALF + HOUR  # by pruning, and the period of `Unique(period=)`
NARROW, NARROW_SLOTS = "narrow", 2  # the queue with a limit
SLOTS = {"pair": 2, "line": 1}  # jobs of a key at a time; a kind without limits has one
ORDERED, PACED = "line", "slow"
BURST = 1  # starts more than one an hour, of PACED
MOMENT = 1  # between two steps
FINAL = {"done", "failed", "cancelled"}


class Key(NamedTuple):
    """A unique key, and how long it is held: start, finished or period."""

    held: str
    kind: str
    value: int


class Served(NamedTuple):
    """The queues of a worker: these, or all but some."""

    queues: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()

    def includes(self, queue: str) -> bool:
        return queue not in self.exclude if self.queues is None else queue in self.queues


@dataclass
class Row:
    """One job."""

    id: int
    kind: str
    number: int  # by which the payload is known
    queue: str
    priority: int
    run_at: int
    max_attempts: int
    created_at: int
    key: str | None = None  # of limits
    unique: Key | None = None
    status: str = "pending"
    attempts: int = 0
    before: int = 0
    claims: int = 0
    holder: int | None = None
    asked: bool = False  # to stop
    errors: int = 0
    result: object = None
    finished_at: int | None = None

    @property
    def place(self) -> tuple[int, int, int]:
        return (-self.priority, self.run_at, self.id)

    @property
    def ordered(self) -> bool:
        return self.kind == ORDERED and self.key is not None

    @property
    def slots(self) -> float:
        return float("inf") if self.kind == PACED else SLOTS.get(self.kind, 1)

    def held_by(self, worker: int, claims: int) -> bool:
        return (self.status, self.holder, self.claims) == ("running", worker, claims)


@dataclass
class Reference:
    """All jobs, and what else decides about them."""

    rows: dict[int, Row] = field(default_factory=dict)
    now: int = 0
    paused: set[str] = field(default_factory=set)
    next_at: dict[str, int] = field(default_factory=dict)  # of the keys of PACED
    last_id: int = 0

    def chosen(self, ids) -> list[Row]:
        return [self.rows[job] for job in dict.fromkeys(ids) if job in self.rows]

    # ----------------------------------------------------------------------------------- enqueue

    def enqueue(self, rows: list[Row], conflict: str, ids: list[int] | None) -> set[int]:
        """Take over what one call has made: `rows` whose ids are 0, and the ids that it returned.

        None stands for DuplicateJob. Returns the ids that are new.
        """
        before = copy.deepcopy(self)
        names = [row.unique or number for number, row in enumerate(rows)]
        pairs = list(zip(names, rows, strict=True))
        counts = dict(pairs if conflict == "replace" else reversed(pairs))
        told = dict(zip(names, ids or names, strict=True))
        refused = conflict == "raise" and len(counts) < len(rows)
        for name, job in told.items():
            row, holder = counts[name], self._holder(counts[name].unique)
            refused = refused or (conflict == "raise" and holder is not None)
            if ids is None:
                continue
            if holder is not None:
                assert job == holder.id, f"it must be told of the holder {holder}, got {job}"
                if conflict == "replace" and holder.status == "pending":
                    self._replace(holder, row)
                continue
            assert job > self.last_id, "new jobs have new ids, in the order of the call"
            row.id = self.last_id = job
            self.rows[job] = row
        assert refused == (ids is None), f"it must be refused: {refused}"
        if ids is None:
            vars(self).update(vars(before))
        else:
            assert ids == [told[name] for name in names]
        return self.rows.keys() - before.rows.keys()

    def _holder(self, key: Key | None) -> Row | None:
        for row in self.rows.values():
            if key and row.unique == key:
                over = row.finished_at is not None and row.created_at <= self.now - KEPT
                if key.held == "period" and over:
                    row.unique = None
                    return None
                return row
        return None

    def _replace(self, old: Row, new: Row) -> None:
        for name in ("number", "queue", "priority", "run_at", "key"):
            setattr(old, name, getattr(new, name))

    # ------------------------------------------------------------------------------------- claims

    def claim(self, worker: int, served: Served, limit: int) -> list[int]:
        """Claim jobs without limits: lane by lane, the head that comes first first."""
        lanes: dict[tuple[str, int], list[Row]] = {}
        for row in sorted(self.rows.values(), key=lambda row: row.place):
            if self._is_free(row) and self._is_open(row, served):
                lanes.setdefault((row.queue, row.priority), []).append(row)
        due = [
            row for lane in sorted(lanes.values(), key=lambda lane: lane[0].place) for row in lane
        ]
        taken = sorted(due[:limit], key=lambda row: row.place)
        for row in taken:
            self._start(row, worker)
        return [row.id for row in taken]

    def note_hot_claim(self, worker: int, served: Served, ids: list[int]) -> None:
        """Take over what a claim took that looks only behind its marks, and not at pauses."""
        rows = self.chosen(ids)
        assert len(rows) == len(ids)
        assert rows == sorted(rows, key=lambda row: row.place)
        for row in rows:
            assert self._is_free(row)
            assert row.run_at <= self.now
            assert served.includes(row.queue)
            self._start(row, worker)

    def note_look(self, worker: int, served: Served, ids: list[int]) -> None:
        """Take over what a look took of those with limits, if it was allowed to."""
        rows = self.chosen(ids)
        assert len(rows) == len(ids)
        assert rows == sorted(rows, key=lambda row: row.place)
        for row in rows:
            assert self._may_start(row, served), f"{row} must not start: {self.rows}"
            earlier = [
                other
                for other in self._lane(row)
                if other.place < row.place and other.id not in ids and not row.ordered
            ]
            assert not earlier, f"{row} was claimed before {earlier}"
            self._start(row, worker)

    def startable(self, served: Served) -> list[Row]:
        """Return what a worker must find at last that looks and looks: the heads that may start."""
        limited = [row for row in self.rows.values() if self._is_limited(row)]
        heads = {min(self._lane(row), key=lambda row: row.place).id: row for row in limited}
        firsts = [row for row in limited if row.ordered and self._is_first(row)]
        found = {row.id: row for row in [*self.chosen(heads), *firsts]}
        return [row for row in found.values() if self._may_start(row, served)]

    def limited_is_due(self, served: Served) -> bool:
        """Say whether a worker is told to look for what has limits."""
        return any(
            self._is_limited(row) and self._is_open(row, served) for row in self.rows.values()
        )

    def _is_free(self, row: Row) -> bool:
        return row.status == "pending" and row.key is None and row.queue != NARROW

    def _is_limited(self, row: Row) -> bool:
        return row.status == "pending" and not self._is_free(row)

    def _is_open(self, row: Row, served: Served) -> bool:
        is_open = served.includes(row.queue) and row.queue not in self.paused
        return is_open and row.run_at <= self.now

    def _lane(self, row: Row) -> list[Row]:
        """Return those that wait in the row's place of a queue: of one key and one priority."""
        lane = (row.queue, row.key, row.priority)
        return [
            other
            for other in self.rows.values()
            if self._is_limited(other) and (other.queue, other.key, other.priority) == lane
        ]

    def _is_first(self, row: Row) -> bool:
        same = (other for other in self.rows.values() if other.key == row.key)
        return all(other.id >= row.id or other.status in FINAL for other in same)

    def _may_start(self, row: Row, served: Served) -> bool:
        running = [other for other in self.rows.values() if other.status == "running"]
        if not self._is_limited(row) or not self._is_open(row, served):
            return False
        if row.queue == NARROW and sum(r.queue == NARROW for r in running) >= NARROW_SLOTS:
            return False
        if row.key is None:
            return True
        of_key = [other for other in running if other.key == row.key]
        if len(of_key) >= min(other.slots for other in [row, *of_key]):
            return False
        if row.ordered and not self._is_first(row):
            return False
        return row.kind != PACED or self._debt(row.key) <= BURST * HOUR

    def _debt(self, key: str) -> int:
        return max(0, self.next_at.get(key, 0) - self.now)

    def _start(self, row: Row, worker: int) -> None:
        row.status, row.holder = "running", worker
        row.attempts += 1
        row.claims += 1
        if row.unique and row.unique.held == "start":
            row.unique = None
        if row.kind == PACED and row.key:
            self.next_at[row.key] = self.now + self._debt(row.key) + HOUR

    # ------------------------------------------------------------------------------ what follows

    def complete(self, row: Row, result: object = None) -> None:
        row.result = result
        self._end(row, "done")

    def fail(self, row: Row, delay: int | None) -> None:
        """End an attempt; None leaves no further one."""
        row.errors += 1
        if row.asked:
            self._end(row, "cancelled")
        elif delay is None or row.attempts >= row.max_attempts:
            self._end(row, "failed")
        else:
            self._wait(row, self.now + delay)

    def give_back(self, row: Row, delay: int | None = None) -> None:
        """Release, or with a delay snooze: no attempt."""
        row.attempts -= 1
        if row.asked:
            self._end(row, "cancelled")
        else:
            self._wait(row, row.run_at if delay is None else self.now + delay)

    def lose(self, row: Row, *, started: bool) -> bool:
        """Reap; return whether there is a further attempt, which then waits for half an hour."""
        if not started and not row.asked:
            self.give_back(row)
            return False
        self.fail(row, HALF)
        return row.status == "pending"

    def prune(self) -> None:
        old = [row for row in self.rows.values() if row.finished_at is not None]
        for row in old:
            if row.finished_at < self.now - KEPT:
                del self.rows[row.id]

    def cancel(self, rows: list[Row]) -> int:
        moved = [row for row in rows if row.status in ("pending", "running")]
        for row in moved:
            row.asked = True
            if row.status == "pending":
                self._end(row, "cancelled")
        return len(moved)

    def retry(self, rows: list[Row]) -> int:
        moved = [row for row in rows if row.status in ("failed", "cancelled")]
        for row in moved:
            row.max_attempts = row.attempts + max(row.max_attempts - row.before, 1)
            row.before, row.asked, row.finished_at = row.attempts, False, None
            self._wait(row, self.now)
        return len(moved)

    def reschedule(self, rows: list[Row], run_at: int) -> int:
        moved = [row for row in rows if row.status == "pending"]
        for row in moved:
            row.run_at = run_at
        return len(moved)

    def delete(self, rows: list[Row]) -> int:
        moved = [row for row in rows if row.status != "running"]
        for row in moved:
            del self.rows[row.id]
        return len(moved)

    def _wait(self, row: Row, run_at: int) -> None:
        row.status, row.holder, row.run_at = "pending", None, run_at

    def _end(self, row: Row, status: str) -> None:
        row.status, row.holder, row.finished_at = status, None, self.now
        if row.unique and row.unique.held != "period":
            row.unique = None
