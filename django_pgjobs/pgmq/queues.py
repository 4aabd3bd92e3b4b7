"""A queue of pgmq.

Invariant: every method is one statement on Django's own connection, inside the caller's transaction if
there is one, so a message is sent, read or archived if and only if that transaction commits.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import router
from django.utils import timezone

from django_pgjobs import delays
from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.pgmq import calls
from django_pgjobs.pgmq.messages import Message, Metrics, read, written, written_headers
from django_pgjobs.pgmq.models import QueueRecord
from django_pgjobs.pgmq.names import check_name
from django_pgjobs.pgmq.twins import twin
from django_pgjobs.refusals import shown
from django_pgjobs.sessions import Rows

Delay = float | datetime.timedelta
When = Delay | datetime.datetime
Messages = int | Message | Iterable[int | Message]

_INT32 = 2**31 - 1  # pgmq counts seconds and messages in an integer
_INT64 = 2**63 - 1  # and has ids in a bigint


@dataclass(frozen=True)
class Queue:
    """The queue `name` of pgmq, on the database `using`, by default the one that the routers give.

    Where the queue does not exist, methods raise QueueMissing, and where pgmq does not, PgmqMissing: both
    after the server said so, so that a transaction which was open is over. Every other refusal comes before
    any SQL.

    A `plain` one returns messages as the JSON that they are: what other programs send can name no row of a model.

    Raises:
        InvalidOption: pgmq can have no queue of this name.

    """

    name: str
    using: str | None = None
    plain: bool = field(default=False, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        """Check the name."""
        check_name(self.name)

    # ------------------------------------------------------------------------------- the queue itself

    def create(self, *, unlogged: bool = False) -> None:
        """Create the queue and its archive, if they are not there.

        Writing into an `unlogged` queue is faster, and a crash of the server empties it.
        """
        self._call(calls.CREATE_UNLOGGED if unlogged else calls.CREATE)

    def drop(self) -> bool:
        """Drop the queue and its archive with all messages; say whether it was there."""
        return bool(self._value(calls.DROP))

    def purge(self) -> int:
        """Delete all messages but those of the archive; return how many there were.

        It waits for every transaction that uses the queue, and locks others out.
        """
        return int(self._value(calls.PURGE))

    def metrics(self) -> Metrics:
        """Count the messages. Ages and visibility are as of the beginning of the transaction."""
        return Metrics(*self._call(calls.METRICS)[0])

    def enable_notify(self, throttle: Delay = 0.25) -> None:
        """Have pgmq notify `pgmq.q_<name>.INSERT` when messages come, at most once per `throttle`.

        pgmq does it in the sender's transaction: senders then wait for each other, see the documentation.
        """
        self._call(calls.ENABLE_NOTIFY, throttle=math.ceil(_seconds("throttle", throttle) * 1000))

    def disable_notify(self) -> None:
        """Have pgmq send no notifications for this queue."""
        self._call(calls.DISABLE_NOTIFY)

    # ------------------------------------------------------------------------------------- messages

    def send(
        self, message: object, *, delay: When = 0, headers: Mapping[str, object] | None = None
    ) -> int:
        """Send one message, to be seen after `delay` or at that time; return its id.

        Raises:
            InvalidPayload: the message or its headers cannot be stored.
            InvalidOption: the delay is none.

        """
        params = {"message": written(message), "headers": written_headers(headers)}
        return int(self._value(calls.SEND, **params, **_when("delay", delay)))

    def send_batch(
        self,
        messages: Iterable[object],
        *,
        delay: When = 0,
        headers: Sequence[Mapping[str, object] | None] | None = None,
    ) -> list[int]:
        """Send messages, all or none; return their ids in order. `headers` has one entry for each.

        Raises:
            InvalidPayload: a message or its headers cannot be stored.
            InvalidOption: the delay is none, what was given is one message, or there are more or fewer
                headers than messages.

        """
        # What has keys or characters is one message, whatever it may be iterated by.
        is_one = isinstance(messages, Mapping | str | bytes | bytearray)
        if is_one or not isinstance(messages, Iterable):
            raise InvalidOption(
                f"messages must be an iterable of messages, got {shown(messages)}. send() sends one."
            )
        texts = [written(message) for message in messages]
        if headers is not None and len(headers) != len(texts):
            raise InvalidOption(
                f"headers must be as many as the messages, {len(texts)}, got {len(headers)}. "
                "Give None where a message has none."
            )
        when = _when("delay", delay)
        if not texts:
            return []
        heads = None if headers is None else [written_headers(one) for one in headers]
        rows = self._call(calls.SEND_BATCH, messages=texts, headers=heads, **when)
        return sorted(message_id for (message_id,) in rows)

    def read(self, vt: Delay = 30, qty: int = 1) -> list[Message]:
        """Read up to `qty` messages, oldest first; others see them again when `vt` is over.

        In a transaction they are locked until its end, and a rollback makes as if they were not read.
        """
        return self._messages(calls.READ, vt=whole("vt", vt), qty=count("qty", qty))

    def read_with_poll(
        self, vt: Delay = 30, qty: int = 1, *, wait: Delay = 5, interval: Delay = 0.1
    ) -> list[Message]:
        """Read as `read()` does; while there is none, look again each `interval`, up to `wait`.

        The server looks: the connection is taken all the time, and a transaction stays open.
        """
        return self._messages(
            calls.READ_WITH_POLL,
            vt=whole("vt", vt),
            qty=count("qty", qty),
            seconds=whole("wait", wait),
            interval=math.ceil(_seconds("interval", interval) * 1000),
        )

    def pop(self, qty: int = 1) -> list[Message]:
        """Read up to `qty` messages and delete them: at most once, lost with whoever read them."""
        return self._messages(calls.POP, qty=count("qty", qty))

    def set_vt(self, messages: Messages, vt: When) -> list[Message]:
        """Let messages be seen again after `vt` from now or at that time; return those that are there.

        0 gives them back at once. Whoever else has read them meanwhile is not asked.
        """
        return self._messages(calls.SET_VT, ids=ids_of(messages), **_when("vt", vt))

    def archive(self, messages: Messages) -> list[int]:
        """Move messages into the archive; return the ids of those that were in the queue."""
        return self._moved(calls.ARCHIVE, messages)

    def delete(self, messages: Messages) -> list[int]:
        """Delete messages; return the ids of those that were in the queue."""
        return self._moved(calls.DELETE, messages)

    acreate = twin(create)
    adrop = twin(drop)
    apurge = twin(purge)
    ametrics = twin(metrics)
    aenable_notify = twin(enable_notify)
    adisable_notify = twin(disable_notify)
    asend = twin(send)
    asend_batch = twin(send_batch)
    aread = twin(read)
    aread_with_poll = twin(read_with_poll)
    apop = twin(pop)
    aset_vt = twin(set_vt)
    aarchive = twin(archive)
    adelete = twin(delete)

    # ------------------------------------------------------------------------------------------------

    @property
    def alias(self) -> str:
        """The database that it is on."""
        return database(self.using)

    def _call(self, sql: str, **params: Any) -> Rows:
        return calls.call(self.alias, sql, params, self.name)

    def _value(self, sql: str, **params: Any) -> Any:
        [[value]] = self._call(sql, **params)
        return value

    def _messages(self, sql: str, **params: Any) -> list[Message]:
        return [
            Message(
                message_id,
                read_ct,
                enqueued_at,
                vt,
                read(message, plain=self.plain),
                read(headers, plain=self.plain),
            )
            for message_id, read_ct, enqueued_at, vt, message, headers in self._call(sql, **params)
        ]

    def _moved(self, sql: str, messages: Messages) -> list[int]:
        return [message_id for (message_id,) in self._call(sql, ids=ids_of(messages))]


def list_queues(using: str | None = None) -> list[QueueRecord]:
    """Return what pgmq lists of all queues, by name."""
    alias = database(using)
    with calls.explained(alias, part="viewer"):
        return list(QueueRecord.objects.using(alias).order_by("queue_name"))


def metrics_all(using: str | None = None) -> list[Metrics]:
    """Count the messages of all queues."""
    return [Metrics(*row) for row in calls.call(database(using), calls.METRICS_ALL, {})]


def database(using: str | None = None) -> str:
    """Return the alias `using`, or the one that the routers give."""
    return using or router.db_for_write(QueueRecord)


def ids_of(messages: Messages) -> list[int]:
    """Return the ids of one message or of many, or raise `InvalidOption`."""
    # Text and bytes are iterable too: "12" would be 1 and 2, and the server takes '1' for a number.
    is_one = isinstance(messages, str | bytes | bytearray) or not isinstance(messages, Iterable)
    return [_id_of(one) for one in ([messages] if is_one else messages)]  # type: ignore[union-attr]


def _id_of(given: object) -> int:
    number = given.id if isinstance(given, Message) else given
    if type(number) is not int or not -_INT64 <= number <= _INT64:
        raise InvalidOption(
            f"A message must be a Message or its id, a whole number, got {shown(given)}. Give the id as an int."
        )
    return number


def _when(what: str, when: When) -> dict[str, Any]:
    if isinstance(when, datetime.datetime):
        if timezone.is_naive(when) and settings.USE_TZ:
            raise InvalidOption(
                f"{what} must be an aware datetime while USE_TZ is True, got {shown(when)}. "
                "Use django.utils.timezone.make_aware()."
            )
        return {"at": when, "seconds": 0.0}
    return {"at": None, "seconds": _seconds(what, when)}


def _seconds(what: str, given: object) -> float:
    seconds = delays.seconds(given)
    if seconds is None:
        raise InvalidOption(f"{what} must be {delays.EXPECTED}, got {shown(given)}.")
    return seconds


def whole(what: str, given: Delay) -> int:
    """Return whole seconds, for pgmq knows no parts of one, or raise `InvalidOption`."""
    return min(math.ceil(_seconds(what, given)), _INT32)


def count(what: str, given: int) -> int:
    """Return a number of messages to ask for, or raise `InvalidOption`."""
    if type(given) is not int or not 1 <= given <= _INT32:
        raise InvalidOption(
            f"{what} must be a whole number from 1 to {_INT32}, got {shown(given)}."
        )
    return given
