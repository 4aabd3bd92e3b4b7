"""Enqueue jobs whose unique key another job may hold: find that one, replace it, or refuse.

Invariant: at any commit one row at most has a key. Who is told of another job is told of a committed
one, or of one of the same transaction; no statement fails over a key, so the caller's transaction
stays usable. A job that runs is neither locked nor waited for.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import ProgrammingError, connections, transaction

from django_pgjobs import conf, enqueueing, inserts, notify, roles
from django_pgjobs.exceptions import DuplicateJob, InvalidOption, PgJobsError
from django_pgjobs.models import Job
from django_pgjobs.uniqueness import Unique

if TYPE_CHECKING:
    from django_pgjobs.options import Entry, Options

_TRIES = 100


class _AskAgain(Exception):
    """The database had no answer for a key."""


class _Call(NamedTuple):
    """What the jobs of one call have in common."""

    alias: str
    row: dict[str, Any]
    rule: Unique

    @classmethod
    def of(cls, kind: str, options: Options) -> _Call:
        rule = options.rule or Unique()
        if rule.locks and options.queue in conf.get().transaction_queues:
            raise InvalidOption(
                f'queue must be one that is claimed by lease for conflict="replace" and until="start", '
                f"got {options.queue!r}, which PGJOBS['QUEUES'] claims by transaction: there a job that "
                'runs reads pending and is locked. Choose another queue, or until="finished".'
            )
        row = enqueueing.columns(kind, options)
        return cls(enqueueing.alias_of(options), row, rule)

    @property
    def statement(self) -> str:
        replaces = self.rule.conflict == "replace"
        if self.rule.period is not None:
            return inserts.FREE_OR_REPLACE if replaces else inserts.FREE_OR_FIND
        if replaces:
            return inserts.INSERT_OR_REPLACE
        return inserts.INSERT_OR_HOLD if self.rule.locks else inserts.INSERT_OR_FIND


class _Placed(NamedTuple):
    """The job that has a key now: a new one, or one that was there."""

    id: int
    new: bool | None  # None: its key is free now, and is asked for again
    created_at: datetime.datetime | None
    run_at: datetime.datetime | None
    due: bool
    readable: bool  # whether this role may read what is stored of it


def insert(kind: str, entry: Entry, options: Options) -> Job:
    """Insert one job unless its unique key is held; return the key's job.

    Raises:
        DuplicateJob: the key is held, and the rule says so.

    """
    call = _Call.of(kind, options)
    row = call.row | entry._asdict()
    for _ in range(_TRIES):
        [placed] = _place(call, [entry])
        if placed.new:
            stored = {"created_at": placed.created_at, "run_at": placed.run_at}
            return enqueueing.as_stored(call.alias, row, id=placed.id, **stored)
        found = _read(call, placed)
        if found is not None:  # it may have been deleted meanwhile
            found.existed = True
            return found
    raise _hidden(kind)


def _read(call: _Call, placed: _Placed) -> Job | None:
    """Return the job that has the key, for a producer only as far as it may be read."""
    rows = Job._base_manager.using(call.alias).filter(pk=placed.id)  # noqa: SLF001 -- all rows
    if placed.readable:
        return rows.defer(*Job.added).first()
    found = rows.only(*roles.READ_BY_PRODUCERS).first()
    if found is not None:
        found.kind = call.row["kind"]  # which is a part of its key
    return found


def insert_many(kind: str, entries: Iterable[Entry], options: Options) -> list[int]:
    """Insert a job for each entry, all or none; return the ids in order.

    Where a key is held, or comes again, the id is that of the job that has it.

    Raises:
        DuplicateJob: a key is held or comes again, and the rule says so.

    """
    call = _Call.of(kind, options)
    ids: list[int] = []
    with transaction.atomic(using=call.alias):
        remaining = iter(entries)
        while chunk := list(itertools.islice(remaining, enqueueing.CHUNK)):
            ids += _place_chunk(call, chunk)
    return ids


def _place_chunk(call: _Call, chunk: Sequence[Entry]) -> list[int]:
    """Place each key once: with its first entry, or with its last where that replaces."""
    chosen: dict[str | int, Entry] = {}
    names = [n if entry.unique_key is None else entry.unique_key for n, entry in enumerate(chunk)]
    for name, entry in zip(names, chunk, strict=True):
        if name in chosen and call.rule.conflict == "raise":
            raise DuplicateJob.of(call.row["kind"], None)
        if name not in chosen or call.rule.conflict == "replace":
            chosen[name] = entry
    placed = dict(zip(chosen, _place(call, list(chosen.values())), strict=True))
    return [placed[name].id for name in names]


def _place(call: _Call, entries: Sequence[Entry]) -> list[_Placed]:
    """Insert those whose keys nobody holds, and find the holders of the others; return all in order."""
    placed = _ask_until_told(call, entries)
    conflict = call.rule.conflict
    for one in placed:
        if conflict == "raise" and not one.new:
            raise DuplicateJob.of(call.row["kind"], one.id)
    if any(one.due for one in placed if one.new or conflict == "replace"):
        notify.wake(call.alias, call.row["queue"])
    return placed


def _ask_until_told(call: _Call, entries: Sequence[Entry]) -> list[_Placed]:
    """Ask the database until it has an answer for each.

    Holders come and go: for a key that got another one in the middle of the statement it has none. Of
    several keys all are asked again then, and what was inserted is taken back before: who holds a part
    of the keys while it takes another could wait for somebody who waits for it.
    """
    alone = len(entries) == 1 and call.rule.period is None
    for _ in range(_TRIES):
        whole = nullcontext() if alone else transaction.atomic(using=call.alias)
        with suppress(_AskAgain), whole:
            return _ask(call, entries)
    raise _hidden(call.row["kind"])


def _ask(call: _Call, entries: Sequence[Entry], before: Sequence[_Placed] = ()) -> list[_Placed]:
    """Ask once, and once more for keys that were freed, by the ids and the time of `before`."""
    enqueueing.refuse_limits(call.row["queue"], *entries)
    given = call.row | enqueueing.arrays(entries)
    given |= {"period": call.rule.seconds, "ids": [one.id for one in before]}
    if before:
        given["run_at"] = before[0].run_at
    with connections[call.alias].cursor() as cursor:
        try:
            cursor.execute(call.statement, given)
        except ProgrammingError as error:
            in_place = call.rule.locks or call.rule.period is not None
            roles.explain(error, "replacer" if in_place else "producer")
            raise
        rows = sorted(cursor.fetchall())
    if len(rows) < len(entries):
        raise _AskAgain
    placed = [_Placed(*row[1:]) for row in rows]
    freed = [n for n, one in enumerate(placed) if one.new is None]
    if freed:
        again = _ask(call, [entries[n] for n in freed], [placed[n] for n in freed])
        for n, one in zip(freed, again, strict=True):
            placed[n] = one
    return placed


def _hidden(kind: str) -> PgJobsError:
    return PgJobsError(
        f"The holder of a unique key of {kind!r} must be visible, got none in {_TRIES} tries. Look "
        "whether row security hides jobs from this user."
    )
