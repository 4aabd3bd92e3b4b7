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
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import connections, router, transaction

from django_pgjobs import conf, notify, statements
from django_pgjobs.exceptions import ForeignTransaction, InvalidOption
from django_pgjobs.lifecycle import Status
from django_pgjobs.models import Job

if TYPE_CHECKING:
    from django_pgjobs.options import Options

CHUNK = 5_000  # rows of one INSERT; 2,000 to 10,000 are alike, and memory stays small

_FIELDS = [field.attname for field in Job._meta.concrete_fields]  # noqa: SLF001 -- Django's own API


def insert(kind: str, payload: str, options: Options, concurrency_key: str | None) -> Job:
    """Insert one job, whose payload is encoded already, and return it."""
    alias = _alias(options)
    _refuse_limits(options.queue, concurrency_key)
    row = _columns(kind, options)
    plain = options.run_at is None and not options.seconds and options.subject is None
    statement = statements.INSERT_PLAIN if plain and not concurrency_key else statements.INSERT
    given = {**row, "payload": payload, "concurrency_key": concurrency_key}
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, given)
        job_id, created_at, *times = cursor.fetchone()
    [run_at] = times or [created_at]
    if run_at <= created_at:
        notify.wake(alias, options.queue)
    values = dict.fromkeys(_FIELDS)
    values.update(
        id=job_id,
        kind=kind,
        queue=row["queue"],
        payload=json.loads(payload),
        status=Status.PENDING.value,
        priority=row["priority"],
        run_at=run_at,
        attempts=0,
        max_attempts=row["max_attempts"],
        attempts_before=0,
        claims=0,
        last_error="",
        errors=[],
        created_at=created_at,
        concurrency_key=concurrency_key,
        subject_type=row["subject_type"],
        subject_id=row["subject_id"],
        meta={},
    )
    return Job.from_db(alias, _FIELDS, list(values.values()))


def insert_many(kind: str, rows: Iterable[tuple[str, str | None]], options: Options) -> list[int]:
    """Insert one job for each encoded payload with its key, all or none; return their ids in order."""
    alias = _alias(options)
    row = _columns(kind, options)
    ids: list[int] = []
    due = False
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        remaining = iter(rows)
        while chunk := list(itertools.islice(remaining, CHUNK)):
            payloads, keys = map(list, zip(*chunk, strict=True))
            _refuse_limits(options.queue, *keys)
            given = {**row, "payloads": payloads, "concurrency_keys": keys}
            cursor.execute(statements.INSERT_MANY, given)
            inserted = cursor.fetchall()
            ids += sorted(job_id for job_id, _ in inserted)
            due = inserted[0][1]
    if due:  # outside the block above: without another one, the jobs are committed now
        notify.wake(alias, options.queue)
    return ids


def _refuse_limits(queue: str, *keys: str | None) -> None:
    """Refuse jobs with a key in a queue that is claimed by transaction: they would wait for ever."""
    if any(keys) and queue in conf.get().transaction_queues:
        raise InvalidOption(
            f"queue must be one that is claimed by lease for a job with a concurrency key, got "
            f"{queue!r}, which PGJOBS['QUEUES'] claims by transaction. Choose another queue."
        )


def _columns(kind: str, options: Options) -> dict[str, Any]:
    subject = options.subject
    return {
        "kind": kind,
        "queue": options.queue,
        "priority": options.priority,
        "run_at": options.run_at,
        "delay": options.seconds,
        "max_attempts": options.max_attempts or conf.get().max_attempts,
        "subject_type": None if subject is None else subject._meta.label_lower,  # noqa: SLF001 -- Django's own API
        "subject_id": None if subject is None else str(subject.pk),
    }


def _alias(options: Options) -> str:
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
