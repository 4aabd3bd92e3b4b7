"""What a worker writes about messages that it has read: acknowledge, prolong, give back, fail.

pgmq's own functions do not ask whether a message is still one's own: after its time was over, somebody else may
have read it. `read_ct` rises with each read, so it tells them apart.

Invariant: every write names the message and the read (id, read_ct), and changes nothing of one that somebody
else has read since. Those that are returned are the ones that were changed. A pump passes over what somebody has
locked, for its other messages would wait too: `still_mine()` tells that from what is gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django_pgjobs.pgmq import calls
from django_pgjobs.pgmq.consumers import Consumer
from django_pgjobs.pgmq.dead_letters import ERROR, bury_params
from django_pgjobs.pgmq.names import table_of
from django_pgjobs.sessions import Execute, Rows

# All are run by the pump of a consumer, the first two by its threads too, where the handler is atomic. Raw: one
# statement for many messages, each with its own read_ct. By the primary key.
_HELD = "unnest(%(ids)s::bigint[], %(reads)s::integer[]) as held (id, read_ct)"
_MINE = "q.msg_id = held.id and q.read_ct = held.read_ct"

# Locked before they are changed, so that nobody reads them in between.
_LOCKED = f"""
    select q.msg_id from {{table}} as q join {_HELD} on {_MINE} order by q.msg_id for update of q {{locks}}
"""
_IDS = f"select array_agg(msg_id) from ({_LOCKED}) as mine"
_ARCHIVE = f"select id from pgmq.archive(%(queue)s::text, ({_IDS})) as id"
_DELETE = f"select id from pgmq.delete(%(queue)s::text, ({_IDS})) as id"
_UPDATE = f"""
    with mine as materialized ({_LOCKED})
    update {{table}} as q set {{{{changes}}}} from mine where q.msg_id = mine.msg_id returning q.msg_id
"""
_STILL_MINE = f"select q.msg_id from {{table}} as q join {_HELD} on {_MINE}"

# What was handled goes and what comes next is read in one transaction, and so by one commit. In this order.
_AND_READ = """
    select id, null::integer as read_ct, null::jsonb as message, null::jsonb as headers
    from ({acknowledge}) as gone
    union all (
        select msg_id, read_ct, message, headers
        from pgmq.read(%(queue)s::text, %(vt)s::integer, %(qty)s::integer) order by msg_id
    )
"""

_PROLONG = _UPDATE.replace("{{changes}}", "vt = clock_timestamp() + make_interval(secs => %(vt)s)")

# A read that led to nothing counts for nothing.
_GIVE_BACK = _UPDATE.replace("{{changes}}", "vt = clock_timestamp(), read_ct = q.read_ct - 1")

_FAIL = _UPDATE.replace(
    "{{changes}}",
    """headers = case when jsonb_typeof(q.headers) = 'object' then q.headers else '{{}}' end
        || jsonb_build_object(%(key)s::text, %(error)s::jsonb)""",
)


class Held(NamedTuple):
    """A message that was read, as the JSON text that it is."""

    id: int
    read_ct: int
    text: str | None
    headers: str | None


class Acks:
    """The writes of one consumer, on a connection of the caller's."""

    def __init__(self, consumer: Consumer, execute: Execute, *, waits: bool = False) -> None:
        """Remember whose they are, and whether they wait for what somebody has locked."""
        self._consumer = consumer
        self._locks = "" if waits else "skip locked"
        self._execute = execute
        self._table = table_of(consumer.queue.name)
        self._acknowledge = _DELETE if consumer.delete else _ARCHIVE

    def read(self, qty: int) -> list[Held]:
        """Read up to so many messages."""
        name, vt = self._consumer.queue.name, self._consumer.vt
        rows = self._execute(calls.READ, {"queue": name, "vt": vt, "qty": qty})
        return [Held(row[0], row[1], row[4], row[5]) for row in rows]

    def acknowledge(self, held: Sequence[Held]) -> set[int]:
        """Archive or delete what was handled."""
        return self._write(self._acknowledge, held)

    def acknowledge_and_read(self, held: Sequence[Held], qty: int) -> tuple[set[int], list[Held]]:
        """Archive or delete what was handled, and read up to so many messages."""
        if not held:
            return set(), self.read(qty)
        sql = _AND_READ.format(acknowledge=self._acknowledge)
        rows = self._rows(sql, held, vt=self._consumer.vt, qty=qty)
        gone = {row[0] for row in rows if row[1] is None}
        return gone, [Held(*row) for row in rows if row[1] is not None]

    def archive(self, held: Held) -> set[int]:
        """Archive what is given up, for there are no dead letters."""
        return self._write(_ARCHIVE, [held])

    def prolong(self, held: Sequence[Held]) -> set[int]:
        """Hide messages for their time once more, from now on."""
        return self._write(_PROLONG, held, vt=self._consumer.vt)

    def give_back(self, held: Sequence[Held]) -> set[int]:
        """Let others read at once what was not handled."""
        return self._write(_GIVE_BACK, held)

    def fail(self, held: Held, error: Mapping[str, object]) -> set[int]:
        """Write the error into the headers. The message is read again when its time is over."""
        return self._write(_FAIL, [held], key=ERROR, error=json.dumps(error))

    def bury(self, held: Held, reason: str) -> set[int]:
        """Move what is given up to the dead letters, with the reason."""
        letters = self._consumer.dead_letters
        assert letters is not None  # noqa: S101 -- for the types
        params = bury_params(letters.name, self._consumer.queue.name, held.id, held.read_ct, reason)
        rows = self._execute(calls.BURY.format(table=self._table, locks=self._locks), params)
        return {held.id} if rows else set()

    def still_mine(self, held: Sequence[Held]) -> set[int]:
        """Return those that nobody else has read: what was not changed of them is locked by somebody."""
        return self._write(_STILL_MINE, held)

    def _write(self, sql: str, held: Sequence[Held], **params: Any) -> set[int]:
        return {row[0] for row in self._rows(sql, held, **params)} if held else set()

    def _rows(self, sql: str, held: Sequence[Held], **params: Any) -> Rows:
        ids, reads = [one.id for one in held], [one.read_ct for one in held]
        given = {"queue": self._consumer.queue.name, "ids": ids, "reads": reads, **params}
        return self._execute(sql.format(table=self._table, locks=self._locks), given)
