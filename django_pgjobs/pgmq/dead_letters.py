"""Dead letters: messages that nobody could handle, in a queue of their own, with what is known of each.

Where a message comes from, and why it is here, stands in its headers under one key, which goes when it is
driven back, together with the error of its last handler: its reads begin anew.

Invariant: a message moves from one queue to another in one statement, as the JSON that it is: it is never in
both, and never in none.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any

from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.pgmq import calls
from django_pgjobs.pgmq.messages import Message, read
from django_pgjobs.pgmq.names import check_name, table_of
from django_pgjobs.pgmq.queues import Messages, Queue, count, ids_of
from django_pgjobs.pgmq.twins import twin
from django_pgjobs.refusals import shown
from django_pgjobs.sessions import Rows

KEY = "x-pgjobs-dead-letter"
ERROR = "x-pgjobs-error"  # the header that says what the last handler failed of, at which read

SLOWEST, FASTEST = 0.001, 1_000_000.0  # messages a second


@dataclass(frozen=True)
class DeadLetter:
    """One message that nobody could handle, and what it was in the queue that it comes from.

    What another program put into the queue has no `queue`, no `reason` and no `read_ct`.
    """

    id: int
    died_at: datetime.datetime
    queue: str | None
    reason: str | None
    read_ct: int | None
    message: Any
    headers: Any


@dataclass(frozen=True)
class DeadLetters:
    """The messages in the queue `name`, where those go that nobody could handle; `plain` as a `Queue` is.

    Raises:
        InvalidOption: pgmq can have no queue of this name.

    """

    name: str
    using: str | None = None
    plain: bool = field(default=False, kw_only=True, compare=False)
    queue: Queue = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the name."""
        object.__setattr__(self, "queue", Queue(self.name, self.using, plain=self.plain))

    def bury(self, source: Queue, message: Message, reason: str) -> int | None:
        """Move a message that was read from `source` here; return its new id.

        None if it is not there any more, or somebody else has read it since: then it is theirs.
        """
        params = bury_params(self.name, source.name, message.id, message.read_ct, reason)
        sql = calls.BURY.format(table=table_of(source.name), locks="")
        rows = self._call(sql, "producer", **params)
        return rows[0][0] if rows else None

    def peek(self, qty: int = 100, *, after: int = 0) -> list[DeadLetter]:
        """Return up to `qty` of them, oldest first, from the one that follows the id `after`; read none."""
        sql = calls.PEEK.format(table=table_of(self.name))
        rows = self._call(sql, "viewer", qty=count("qty", qty), after=after)
        return [
            _letter(
                message_id,
                died_at,
                read(message, plain=self.plain),
                read(headers, plain=self.plain),
            )
            for message_id, _, died_at, _, message, headers in rows
        ]

    def redrive(
        self,
        messages: Messages | None = None,
        *,
        rate: float | None = None,
        into: str | None = None,
        limit: int | None = None,
    ) -> list[int]:
        """Send these, or all, back to the queues that they come from, or `into` one; return their ids here.

        With a `rate` they are not seen at once but so many a second; with a `limit` the oldest go and no more.
        What comes from no queue that exists stays.

        Raises:
            InvalidOption: the rate or the limit is none, or pgmq can have no queue named `into`.
            QueueMissing: it has none.

        """
        rows = self._call(
            calls.REDRIVE.format(table=table_of(self.name)),
            "operator",
            error=ERROR,
            ids=None if messages is None else ids_of(messages),
            into=None if into is None else check_name(into),
            interval=0.0 if rate is None else 1 / check_rate(rate),
            limit=None if limit is None else count("limit", limit),
        )
        if into is not None and not rows:
            Queue(into, self.using).metrics()  # raises where the statement found no such queue
        return [message_id for message_id, _ in rows]

    def purge(self) -> int:
        """Delete all of them; return how many there were."""
        return self.queue.purge()

    abury = twin(bury)
    apeek = twin(peek)
    aredrive = twin(redrive)
    apurge = twin(purge)

    def _call(self, sql: str, part: str, **params: Any) -> Rows:
        return calls.call(self.queue.alias, sql, {"key": KEY, **params}, self.name, part)


def bury_params(
    name: str, source: str, message_id: int, read_ct: int, reason: str
) -> dict[str, object]:
    """Return what the statement takes that moves a message of `source` to the dead letters `name`."""
    return {
        "queue": name,
        "source": source,
        "id": message_id,
        "read_ct": read_ct,
        "reason": reason,
        "key": KEY,
    }


def _letter(message_id: int, died_at: datetime.datetime, message: Any, headers: Any) -> DeadLetter:
    known: Any = {}
    if isinstance(headers, dict) and isinstance(headers.get(KEY), dict):
        known = headers.pop(KEY)
    return DeadLetter(
        message_id,
        died_at,
        known.get("queue"),
        known.get("reason"),
        known.get("read_ct"),
        message,
        headers or None,
    )


def check_rate(rate: Any) -> float:
    """Return a number of messages a second, or raise `InvalidOption`."""
    number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if not number or not SLOWEST <= rate <= FASTEST:  # false for NaN
        raise InvalidOption(
            f"rate must be a number of messages a second from {SLOWEST} to {FASTEST:.0f}, "
            f"got {shown(rate)}."
        )
    return float(rate)
