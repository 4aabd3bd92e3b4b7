"""Look at queues and their messages without reading any, for people: commands and pages.

Invariant: values under keys that look secret are masked. A page of messages takes a bounded number of rows and
of bytes from the server, whatever other programs have sent; figures count as far as they are told.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from django_pgjobs import masking
from django_pgjobs.exceptions import PgmqMissing, QueueMissing
from django_pgjobs.pgmq import calls
from django_pgjobs.pgmq.dead_letters import KEY
from django_pgjobs.pgmq.names import table_of
from django_pgjobs.pgmq.queues import Queue, database

IN_A_PAGE, ALONE = 20_000, 1_000_000  # bytes of a message that are shown, and of its headers


@dataclass(frozen=True)
class Figures:
    """What is known of one queue. None: of one whose table is gone or, of ages, of one that is empty.

    Where `more` is true there are more messages than were counted: `length` and `visible` are at least so many.
    """

    queue: str
    length: int | None
    visible: int | None
    newest_age: int | None
    oldest_age: int | None
    total: int | None
    archive_bytes: int | None
    is_partitioned: bool
    is_unlogged: bool
    more: bool


@dataclass(frozen=True)
class Peek:
    """One message, fit to be shown. What is too large for that is None, and not `is_whole`.

    `comes_from`, `reason` and `reads_there` are those of a dead letter, whose own header is left out.
    """

    id: int
    read_ct: int
    enqueued_at: datetime.datetime
    vt: datetime.datetime
    is_visible: bool
    size: int  # bytes of message and headers, as they are stored
    message: Any
    headers: Any
    is_whole: bool
    is_dead: bool
    comes_from: str | None
    reason: str | None
    reads_there: int | None


def figures(using: str | None = None, queue: str = "", *, most: int | None = None) -> list[Figures]:
    """Return the figures of all queues by name, or of one; count no further than `most` messages in each.

    Raises:
        QueueMissing: there is no such queue.
        PgmqMissing: there is no pgmq.

    """
    alias = database(using)
    for is_last in (False, False, True):
        found = calls.call(
            alias, calls.QUEUES, {"queue": queue, "most": "all" if most is None else most + 1}
        )
        if queue and not found:
            raise QueueMissing.of(queue, alias)
        try:
            counts = _counts(alias, [row[-1] for row in found if row[-1] is not None])
        except PgmqMissing:  # of a queue that was dropped since
            if is_last:
                raise
        else:
            break
    return [_figures(row, counts.get(row[0]), most) for row in found]


def _counts(alias: str, parts: list[str]) -> dict[str, tuple[Any, ...]]:
    if not parts:
        return {}
    with transaction.atomic(using=alias):
        rows = calls.call(alias, " union all ".join(parts).replace("%", "%%"), {})
    return {name: tuple(counted) for name, *counted in rows}


def _figures(row: tuple[Any, ...], counted: tuple[Any, ...] | None, most: int | None) -> Figures:
    name, is_partitioned, is_unlogged, archive_bytes, _ = row
    length, visible, newest_age, oldest_age, total = counted or (None,) * 5
    more = most is not None and length is not None and length > most
    return Figures(
        queue=name,
        length=most if more else length,
        visible=min(visible, most) if more and most is not None else visible,
        newest_age=newest_age,
        oldest_age=oldest_age,
        total=total,
        archive_bytes=archive_bytes,
        is_partitioned=is_partitioned,
        is_unlogged=is_unlogged,
        more=more,
    )


def page(queue: Queue, qty: int, *, after: int = 0) -> tuple[list[Peek], bool]:
    """Return up to `qty` messages, oldest first, from the one that follows the id `after`; and whether there are more.

    Raises:
        QueueMissing: there is no such queue.
        PgmqMissing: there is no pgmq.

    """
    found = _look(queue, qty + 1, after, IN_A_PAGE)
    return found[:qty], len(found) > qty


def one(queue: Queue, message_id: int) -> Peek | None:
    """Return one message with more of it, or None where it is not there. Raises as `page()` does."""
    found = _look(queue, 1, message_id - 1, ALONE)
    return found[0] if found and found[0].id == message_id else None


def _look(queue: Queue, qty: int, after: int, most: int) -> list[Peek]:
    sql = calls.PAGE.format(table=table_of(queue.name))
    params = {"qty": qty, "after": after, "most": most, "key": KEY}
    return [_peek(row) for row in calls.call(queue.alias, sql, params, queue.name, "viewer")]


def _peek(row: tuple[Any, ...]) -> Peek:
    id_, read_ct, enqueued_at, vt, is_visible, size, message, headers_size, headers, *letter = row
    is_dead, comes_from, reason, reads = letter
    shown = masking.read(headers)
    if is_dead and isinstance(shown, dict):
        shown = {name: value for name, value in shown.items() if name != KEY} or None
    return Peek(
        id=id_,
        read_ct=read_ct,
        enqueued_at=enqueued_at,
        vt=vt,
        is_visible=is_visible,
        size=size + headers_size,
        message=masking.masked(masking.read(message)),
        headers=masking.masked(shown),
        is_whole=(message is not None or not size) and (headers is not None or not headers_size),
        is_dead=is_dead,
        comes_from=comes_from,
        reason=reason,
        reads_there=int(reads) if reads and reads.isascii() and reads.isdigit() else None,
    )
