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


class Meant(NamedTuple):
    """A transaction of a producer: so many jobs, and what became of it as far as it was told."""

    jobs: int
    fate: str


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
    inserted: float = math.inf  # when its transaction was committed
    claims: list[Claim] = field(default_factory=list)
    bodies: list[Body] = field(default_factory=list)


@dataclass
class History:
    """All of a run."""

    meant: dict[str, Meant]  # by the key of the business
    business: set[str]  # the rows that are there
    lives: dict[str, Life]  # by the key of the job
    deaths: dict[int, float]  # of workers, as recorded
    workers: dict[int, set[int]]  # by process
    bodies: int
    homeless: list[str]  # keys of bodies without a job
    doubled: list[str]  # keys of more than one job


def read(connection: psycopg.Connection[Any], ledger: Ledger) -> History:
    """Gather what both witnesses say."""
    rows = _rows(connection, "select * from django_pgjobs_job")
    lives = {row["payload"]["key"]: Life(row) for row in rows}
    keys = Counter(row["payload"]["key"] for row in rows)
    by_id = {life.row["id"]: life for life in lives.values()}
    for change, committed in _changes(connection):
        if life := by_id.get(change.job):
            _note(life, change, committed)
    entries = ledger.entries()
    bodies, meant = _bodies(entries), _meant(entries)
    for number in (key for key in lives if key.startswith("canary-")):
        meant[number.removesuffix(".0")] = Meant(1, "committed")
    for key, found in bodies.items():
        if key in lives:
            lives[key].bodies = found
    workers: dict[int, set[int]] = defaultdict(set)
    rows = _rows(connection, "select id, pid, died_at from django_pgjobs_worker")
    for row in rows:
        workers[row["pid"]].add(row["id"])
    return History(
        meant=meant,
        business={row["name"] for row in _rows(connection, "select name from auth_group")},
        lives=lives,
        deaths={row["id"]: row["died_at"].timestamp() for row in rows if row["died_at"]},
        workers=workers,
        bodies=sum(map(len, bodies.values())),
        homeless=[key for key in bodies if key not in lives],
        doubled=[key for key, count in keys.items() if count > 1],
    )


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
