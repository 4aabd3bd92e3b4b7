"""Write pending jobs into the caller's transaction.

Invariant: one INSERT on the caller's own connection and nothing else, so the jobs share the fate
of whatever else that transaction does; the wake-up comes after the commit. Everything that can be
refused was refused before.
"""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import ProgrammingError, connections, router, transaction
from django.db.models.base import ModelState

from django_pgjobs import conf, inserts, notify, roles, subjects
from django_pgjobs.exceptions import ForeignTransaction, InvalidOption
from django_pgjobs.lifecycle import Status
from django_pgjobs.models import Job

if TYPE_CHECKING:
    from django_pgjobs.options import Entry, Options

CHUNK = 5_000  # rows of one INSERT; 2,000 to 10,000 are alike, and memory stays small

_COLUMNS = [field.attname for field in Job._meta.concrete_fields if field.name not in Job.added]  # noqa: SLF001 -- Django's own API
_read = json.JSONDecoder().raw_decode  # with the end of what it has read
_NEW = dict.fromkeys(_COLUMNS) | {
    "status": Status.PENDING.value,
    "attempts": 0,
    "attempts_before": 0,
    "claims": 0,
    "last_error": "",
}


def insert(kind: str, entry: Entry, options: Options) -> Job:
    """Insert one job and return it."""
    alias = alias_of(options)
    if entry.concurrency_key is not None:
        refuse_limits(options.queue, entry)
    row = columns(kind, options)
    row["payload"], row["concurrency_key"], row["unique_key"] = entry
    statement, params = _statement(row)
    with connections[alias].cursor() as cursor:
        try:
            cursor.execute(statement, params)
        except ProgrammingError as error:
            roles.explain(error, "producer")
            raise
        job_id, created_at, *times = cursor.fetchone()
    [run_at] = times or [created_at]
    if run_at <= created_at:
        notify.wake(alias, options.queue)
    return as_stored(alias, row, id=job_id, created_at=created_at, run_at=run_at)


def _statement(row: dict[str, Any]) -> tuple[str, Any]:
    """Return the statement that inserts this row, and its parameters."""
    if not (row["run_at"] or row["delay"] or row["subject_type"] or row["concurrency_key"]):
        names = row["kind"], row["queue"], row["priority"], row["max_attempts"]
        noted = row["meta"] is not None
        plain = inserts.plain(*names, noted=noted)
        if plain is not None:
            return plain, (row["payload"], row["meta"]) if noted else (row["payload"],)
    return inserts.INSERT, row


def as_stored(alias: str, row: dict[str, Any], **stored: Any) -> Job:
    """Return the job of a new row: what was given, what the row was `stored` with, and defaults."""
    # Model.from_db() does the same with 24 calls of setattr(), a tenth of an enqueue. No signal says that
    # an instance was made.
    values = _NEW | row | stored
    del values["delay"]
    values["_state"] = state = ModelState()
    state.db, state.adding = alias, False
    values["payload"], _ = _read(row["payload"])
    values["errors"] = []
    values["meta"] = {} if row["meta"] is None else json.loads(row["meta"])
    job = Job.__new__(Job)
    job.__dict__ = values
    return job


def insert_many(kind: str, entries: Iterable[Entry], options: Options) -> list[int]:
    """Insert one job for each entry, all or none; return their ids in order."""
    alias = alias_of(options)
    row = columns(kind, options)
    ids: list[int] = []
    due = False
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        remaining = iter(entries)
        while chunk := list(itertools.islice(remaining, CHUNK)):
            refuse_limits(options.queue, *chunk)
            try:
                cursor.execute(inserts.INSERT_MANY, row | arrays(chunk))
            except ProgrammingError as error:
                roles.explain(error, "producer")
                raise
            inserted = cursor.fetchall()
            ids += sorted(job_id for job_id, _ in inserted)
            due = inserted[0][1]
    if due:  # outside the block above: without another one, the jobs are committed now
        notify.wake(alias, options.queue)
    return ids


def arrays(entries: Sequence[Entry]) -> dict[str, list[str | None] | None]:
    """Return what the statements take that insert many: an array for each column."""
    payloads, concurrency_keys, unique_keys = map(list, zip(*entries, strict=True))
    return {
        "payloads": payloads,
        # An array of nulls would cost jobs without keys; none at all reads as one.
        "concurrency_keys": concurrency_keys if any(concurrency_keys) else None,
        "unique_keys": unique_keys,
    }


def refuse_limits(queue: str, *entries: Entry) -> None:
    """Refuse jobs with a key in a queue that is claimed by transaction: they would wait for ever.

    Raises:
        InvalidOption: there is one.

    """
    if any(entry.concurrency_key for entry in entries) and queue in conf.get().transaction_queues:
        raise InvalidOption(
            f"queue must be one that is claimed by lease for a job with a concurrency key, got "
            f"{queue!r}, which PGJOBS['QUEUES'] claims by transaction. Choose another queue."
        )


def columns(kind: str, options: Options) -> dict[str, Any]:
    """Return what every statement that inserts takes, beside the entries."""
    about = None if options.subject is None else subjects.identify(options.subject)
    return {
        "kind": kind,
        "queue": options.queue,
        "priority": options.priority,
        "run_at": options.run_at,
        "delay": options.seconds,
        "max_attempts": options.max_attempts or conf.get().max_attempts,
        "subject_type": about and about[0],
        "subject_id": about and about[1],
        "meta": None if options.meta is None else json.dumps(options.meta),
    }


def alias_of(options: Options) -> str:
    """Return the database to insert on; warn where it is not that of the open transaction."""
    alias = options.database or router.db_for_write(Job)
    # In autocommit: no atomic block of its own, and nobody commits by hand.
    if len(connections.settings) > 1 and connections[alias].get_autocommit():
        for other in connections.all(initialized_only=True):
            if other.in_atomic_block and other.alias != alias:
                _warn(alias, other.alias)
                break
    return alias


def _warn(alias: str, other: str) -> None:
    """Warn at the line that enqueued; Python's own filter shows it once for each such line."""
    warnings.warn(
        f"A job was enqueued on the database {alias!r} while a transaction is open on {other!r}: "
        f"the job is committed now, whatever becomes of that transaction. Open atomic(using="
        f"{alias!r}), or enqueue with .using(database={other!r}).",
        ForeignTransaction,
        stacklevel=_stacklevel(),
    )


def _stacklevel() -> int:
    package = str(Path(__file__).parent)
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 -- warnings' skip_file_prefixes needs 3.12
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        level, frame = level + 1, frame.f_back
    return level
