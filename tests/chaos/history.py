"""What happened, from the two witnesses: the ledger beside the database, and the audit in it."""

from __future__ import annotations

import datetime
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg

from tests.audit import Change
from tests.ledger import Entry, Ledger

VERBS = ("cancel-1", "retry-1")


class Meant(NamedTuple):
    """A transaction of a producer: so many jobs, and what became of it as far as it was told."""

    jobs: int
    fate: str


class Told(NamedTuple):
    """What the caller of a unique enqueue was told: by which rule, which job, and whether it is new."""

    rule: str
    job: int
    new: bool


class Body(NamedTuple):
    """One run of a handler: in which process, from when to when, and how it ended if it did."""

    pid: int
    start: float
    end: float
    how: str


class Claim(NamedTuple):
    """One claim of a job, from its commit until the row was given up, and by which worker."""

    worker: int
    at: float
    committed: float
    until: float


@dataclass
class Life:
    """Everything about one job."""

    row: dict[str, Any]
    changes: list[Change] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)  # of the changes
    inserted: float = math.inf  # when its transaction was committed
    claims: list[Claim] = field(default_factory=list)
    bodies: list[Body] = field(default_factory=list)

    @property
    def keys(self) -> list[str]:
        """All that the payload was known by: who replaces a job gives it another one."""
        return list({change.key: None for change in self.changes if change.key})

    @property
    def of_a_tick(self) -> bool:
        """Whether no producer has made it, and its handler cannot say which job it is."""
        return "schedule" in self.row["meta"]


@dataclass
class History:
    """All of a run."""

    meant: dict[str, Meant]  # by the key of the business
    business: dict[str, float]  # the rows that are there, and when they were committed
    told: dict[str, Told]  # by the key of the business
    verbs: Counter[str]  # what producers did by hand
    lives: dict[str, Life]  # by the key of the job
    schedules: list[dict[str, Any]]
    deaths: dict[int, float]  # of workers, as recorded
    workers: dict[int, set[int]]  # by process
    bodies: int
    homeless: list[str]  # keys of bodies without a job
    doubled: list[str]  # keys of more than one job


def read(connection: psycopg.Connection[Any], ledger: Ledger) -> History:
    """Gather what both witnesses say."""
    rows = _rows(connection, "select * from django_pgjobs_job")
    lives = {_key(row): Life(row) for row in rows}
    keys = Counter(map(_key, rows))
    by_id = {life.row["id"]: life for life in lives.values()}
    for change, committed in _changes(connection):
        if life := by_id.get(change.job):
            _note(life, change, committed)
    entries = ledger.entries()
    bodies, meant = _bodies(entries), _meant(entries)
    for number in (key for key in lives if key.startswith("canary-")):
        meant[number.removesuffix(".0")] = Meant(1, "committed")
    owners = {key: life for life in lives.values() for key in life.keys}
    for key, found in bodies.items():
        if key in owners:
            owners[key].bodies += found
    workers: dict[int, set[int]] = defaultdict(set)
    rows = _rows(connection, "select id, pid, died_at from django_pgjobs_worker")
    for row in rows:
        workers[row["pid"]].add(row["id"])
    return History(
        meant=meant,
        business=_business(connection),
        told=_told(entries),
        verbs=Counter(e.event for e in entries if e.event in VERBS),
        lives=lives,
        schedules=_rows(connection, "select * from django_pgjobs_schedule"),
        deaths={row["id"]: row["died_at"].timestamp() for row in rows if row["died_at"]},
        workers=workers,
        bodies=sum(map(len, bodies.values())),
        homeless=[key for key in bodies if key not in owners],
        doubled=[key for key, count in keys.items() if count > 1],
    )


def _key(row: dict[str, Any]) -> str:
    return str(row["payload"].get("key", f"tick-{row['id']}"))


def _business(connection: psycopg.Connection[Any]) -> dict[str, float]:
    sql = "select name, pg_xact_commit_timestamp(xmin) as committed from auth_group"
    return {row["name"]: _seconds(row["committed"]) for row in _rows(connection, sql)}


def _told(entries: list[Entry]) -> dict[str, Told]:
    told = {}
    for entry in entries:
        if entry.event.startswith("told-"):
            rule, job, new = entry.event.removeprefix("told-").rsplit("-", 2)
            told[entry.key.rpartition(".")[0]] = Told(rule, int(job), new == "new")
    return told


def _rows(connection: psycopg.Connection[Any], sql: str) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        return cursor.execute(sql).fetchall()


def _changes(connection: psycopg.Connection[Any]) -> list[tuple[Change, float]]:
    columns = ", ".join(Change._fields)
    sql = f"select {columns}, pg_xact_commit_timestamp(xmin) from audit order by position"  # noqa: S608
    found = []
    for *values, committed in connection.execute(sql).fetchall():
        found.append((Change(*values), _seconds(committed)))
    return found


def _seconds(moment: datetime.datetime | None) -> float:
    return moment.timestamp() if moment else math.inf


def _note(life: Life, change: Change, committed: float) -> None:
    life.changes.append(change)
    life.commits.append(committed)
    if change.old is None:
        life.inserted = committed
    elif change.old == "running" and change.new != "running":
        life.claims[-1] = life.claims[-1]._replace(until=committed)
    elif change.old == "pending" and change.new == "running":
        assert change.holder
        life.claims.append(Claim(change.holder, change.at.timestamp(), committed, math.inf))


def _meant(entries: list[Entry]) -> dict[str, Meant]:
    meant: dict[str, Meant] = {}
    for entry in entries:
        if entry.event.startswith("meant-"):
            meant[entry.key] = Meant(int(entry.event.removeprefix("meant-")), "unknown")
        elif entry.event in ("committed", "rolled-back"):
            meant[entry.key] = meant[entry.key]._replace(fate=entry.event)
    return meant


def _bodies(entries: list[Entry]) -> dict[str, list[Body]]:
    """Put starts and ends together. One without an end is taken to go on for ever."""
    bodies: dict[str, list[Body]] = defaultdict(list)
    for entry in entries:
        if entry.event == "start":
            bodies[entry.key].append(Body(entry.pid, entry.at, math.inf, ""))
        elif entry.event in ("end", "raise"):
            own = bodies[entry.key]
            place = max(
                n for n, body in enumerate(own) if body.pid == entry.pid and body.end == math.inf
            )
            own[place] = own[place]._replace(end=entry.at, how=entry.event)
    return bodies
