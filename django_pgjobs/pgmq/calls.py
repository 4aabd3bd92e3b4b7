"""The SQL of queues: calls of pgmq's functions, on Django's own connection and in its transaction.

Raw, since the ORM calls no functions that return rows. All but the last are run by `Queue`. A name goes to pgmq
as a parameter, and pgmq quotes it; where pgmq has no function, `{table}` is a name that is quoted. pgmq's own
indexes serve them, the primary key `msg_id` and `vt`.

Invariant: columns are asked for by name, so that a pgmq with more of them is as good; and what the server
says of a queue or a pgmq that is missing is told in words that say what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import ProgrammingError
from psycopg import errors

from django_pgjobs.exceptions import PgmqMissing, QueueMissing
from django_pgjobs.pgmq import grants
from django_pgjobs.sessions import Execute, Rows, execute_on_django, reason

CREATE = "select pgmq.create(%(queue)s::text)"
CREATE_UNLOGGED = "select pgmq.create_unlogged(%(queue)s::text)"
DROP = "select pgmq.drop_queue(%(queue)s::text)"
PURGE = "select pgmq.purge_queue(%(queue)s::text)"

# When a message can be seen, by the database's clock: `at` that time, or else in `seconds`.
_WHEN = """
    coalesce(%(at)s::timestamptz,
        clock_timestamp() + make_interval(secs => %(seconds)s::double precision))
"""

SEND = f"""
    select pgmq.send(%(queue)s::text, %(message)s::jsonb, %(headers)s::jsonb, {_WHEN})
"""
SEND_BATCH = f"""
    select pgmq.send_batch(
        %(queue)s::text, %(messages)s::text[]::jsonb[], %(headers)s::text[]::jsonb[], {_WHEN})
"""

# Times that Python cannot have come as the next that it can: the read has happened when they arrive.
_CLAMPED = "greatest(least({name}, '9999-12-30'), '0001-01-03')"
_MOMENT = f"{_CLAMPED} as {{name}}"
_TIMES = f"{_MOMENT.format(name='enqueued_at')}, {_MOMENT.format(name='vt')}"
_COLUMNS = f"msg_id, read_ct, {_TIMES}, message, headers"
READ = f"""
    select {_COLUMNS} from pgmq.read(%(queue)s::text, %(vt)s::integer, %(qty)s::integer)
    order by msg_id
"""
READ_WITH_POLL = f"""
    select {_COLUMNS} from pgmq.read_with_poll(%(queue)s::text, %(vt)s::integer, %(qty)s::integer,
        %(seconds)s::integer, %(interval)s::integer)
    order by msg_id
"""
POP = f"""
    select {_COLUMNS} from pgmq.pop(%(queue)s::text, %(qty)s::integer) order by msg_id
"""
SET_VT = f"""
    select {_COLUMNS} from pgmq.set_vt(%(queue)s::text, %(ids)s::bigint[], {_WHEN}) order by msg_id
"""

ARCHIVE = "select id from pgmq.archive(%(queue)s::text, %(ids)s::bigint[]) as id order by id"
DELETE = "select id from pgmq.delete(%(queue)s::text, %(ids)s::bigint[]) as id order by id"

_FIGURES = """
    queue_name, queue_length, queue_visible_length, newest_msg_age_sec, oldest_msg_age_sec,
    total_messages, scrape_time
"""
METRICS = f"select {_FIGURES} from pgmq.metrics(%(queue)s::text)"
METRICS_ALL = f"select {_FIGURES} from pgmq.metrics_all() order by queue_name"

ENABLE_NOTIFY = "select pgmq.enable_notify_insert(%(queue)s::text, %(throttle)s::integer)"
DISABLE_NOTIFY = "select pgmq.disable_notify_insert(%(queue)s::text)"

# Run by figures(), for commands and pages: all queues, or one, each with the statement that counts it, which the
# server writes, for it knows how names are quoted. What pgmq.metrics_all() does; but that reads each queue to its
# end, and one whose table is gone takes the figures of the others away. `most` is how far is counted: messages, or
# `all`. The parts of a partitioned archive have the size, other tables have no parts.
_TABLE = "to_regclass(format('pgmq.%%I', '{letter}_' || lower(queue_name)))"
_AGE = f"extract(epoch from now() - {_CLAMPED.format(name='enqueued_at')})::bigint"
_COUNTED = f"""
    select %1$L::text, counted.*,
        (select {_AGE} from pgmq.%2$I order by msg_id desc limit 1),
        (select {_AGE} from pgmq.%2$I order by msg_id limit 1),
        (select case when is_called then last_value else 0 end from pgmq.%3$I)
    from (select count(*), count(*) filter (where vt <= now())
        from (select vt from pgmq.%2$I limit %4$s) as few) as counted
"""
QUEUES = f"""
    with found as materialized (
        select queue_name, is_partitioned, is_unlogged, 'q_' || lower(queue_name) as name,
            {_TABLE.format(letter="q")} as queue, {_TABLE.format(letter="a")} as archive
        from pgmq.meta where %(queue)s::text in ('', queue_name)
    )
    select queue_name, is_partitioned, is_unlogged, coalesce(
            (select sum(pg_total_relation_size(relid)) from pg_partition_tree(archive)),
            pg_total_relation_size(archive))::bigint,
        case when queue is not null and to_regclass(format('pgmq.%%I', name || '_msg_id_seq')) is not null then
            format($${_COUNTED.replace("%", "%%")}$$, queue_name, name, name || '_msg_id_seq', %(most)s::text)
        end
    from found order by queue_name
"""

# Run by the admin before it purges, in the same transaction: a lock on the whole queue that is not to be had soon would
# have everybody else wait behind it.
PATIENCE = "select set_config('lock_timeout', '2s', true)"

# Run by peeks, for commands and pages. What is too large to be shown stays in the server: its size is known
# without unpacking it. By the primary key.
_SHOWN = """
    case when pg_column_size({name}) <= %(most)s then
        case when octet_length({name}::text) <= %(most)s then {name}::text end end
"""
_LETTER = "headers -> %(key)s::text"
PAGE = f"""
    select msg_id, read_ct, {_TIMES}, vt <= clock_timestamp(), coalesce(pg_column_size(message), 0),
        {_SHOWN.format(name="message")}, coalesce(pg_column_size(headers), 0), {_SHOWN.format(name="headers")},
        {_LETTER} is not null, left({_LETTER} ->> 'queue', 200), left({_LETTER} ->> 'reason', 2000),
        left({_LETTER} ->> 'read_ct', 10)
    from {{table}}
    where msg_id > %(after)s order by msg_id limit %(qty)s
"""

# Run by DeadLetters, which looks without reading: pgmq has no function for that. By the primary key.
PEEK = f"""
    select {_COLUMNS} from {{table}} where msg_id > %(after)s order by msg_id limit %(qty)s
"""

# Run by DeadLetters.bury(): one statement, so that the message is in one of the queues, whatever happens. Only who
# has read it last may: read_ct rises with each read. By the primary key.
BURY = """
    with dead as (
        delete from {table} where msg_id = (
            select msg_id from {table} where msg_id = %(id)s and read_ct = %(read_ct)s for update {locks})
        returning message, case when jsonb_typeof(headers) = 'object' then headers else '{{}}' end
            || jsonb_build_object(%(key)s::text, jsonb_build_object(
                'queue', %(source)s::text, 'id', msg_id, 'read_ct', read_ct,
                'enqueued_at', enqueued_at, 'reason', %(reason)s::text)) as headers
    )
    select pgmq.send(%(queue)s::text, message, headers, clock_timestamp()) from dead
"""

# Run by DeadLetters.redrive(): one statement, as above. What another one is moving is passed over, and so is,
# before it is counted, what has nowhere to go; headers that were null are null again, and the error is gone, for the
# reads are counted anew. The n-th message is seen n - 1 intervals later.
REDRIVE = """
    with chosen as (
        select q.msg_id, meta.queue_name as target
        from {table} as q join pgmq.meta on meta.queue_name
            = coalesce(%(into)s::text, q.headers -> %(key)s::text ->> 'queue')
        where %(ids)s::bigint[] is null or q.msg_id = any(%(ids)s::bigint[])
        order by q.msg_id limit %(limit)s::bigint for update of q skip locked
    ), moved as (
        delete from {table} as q using chosen where q.msg_id = chosen.msg_id
        returning q.msg_id, target, message, case jsonb_typeof(headers)
            when 'object' then nullif(headers - %(key)s::text - %(error)s::text, '{{}}')
            else headers end as headers
    ), ranked as (
        select *, row_number() over (order by msg_id) - 1 as place from moved
    )
    select msg_id, pgmq.send(target, message, headers,
        clock_timestamp() + place * make_interval(secs => %(interval)s::double precision))
    from ranked order by msg_id
"""


# Run by readiness and the grants, on a consumer's own connection too: which of these tables are there, and whether
# pgmq notifies of what is inserted. Any role may read the catalogue. By the catalogue's own index.
_TABLES = """
    select relname::text, exists (
        select from pg_trigger where tgrelid = c.oid and tgname = 'trigger_notify_queue_insert_listeners')
    from pg_class c where relnamespace = to_regnamespace('pgmq') and relname = any(%(names)s::text[])
"""

# Whose privileges these take: what is told where one is refused. Others are the owner's.
_PARTS = {
    **dict.fromkeys((SEND, SEND_BATCH), "producer"),
    **dict.fromkeys((READ, READ_WITH_POLL, POP, SET_VT, ARCHIVE, DELETE), "worker"),
    **dict.fromkeys((METRICS, METRICS_ALL), "viewer"),
    PURGE: "operator",
}

# What the server says where there is no pgmq, or an older one that lacks a function or a figure.
MISSING = (
    errors.InvalidSchemaName,
    errors.UndefinedFunction,
    errors.UndefinedTable,
    errors.UndefinedColumn,
)


def call(alias: str, sql: str, params: Mapping[str, Any], queue: str = "", part: str = "") -> Rows:
    """Execute one of these about `queue` and return its rows; `part` is whose privileges it takes.

    Raises:
        QueueMissing: pgmq has no such queue.
        PgmqMissing: the database has no pgmq, or too old a one.

    """
    with explained(alias, queue, part or _PARTS.get(sql, "")):
        return execute_on_django(alias)(sql, {"queue": queue, **params})


@contextmanager
def explained(alias: str, queue: str = "", part: str = "") -> Iterator[None]:
    """Tell in other words what the server says about what is missing, and add to it what must be granted."""
    try:
        yield
    except ProgrammingError as error:
        said = error.__cause__
        if (other := missing(said, alias, queue)) is not None:
            raise other from error
        if advice := grants.advice(said, part, queue):
            error.add_note(advice)
        raise


def missing(said: object, alias: str, queue: str) -> QueueMissing | PgmqMissing | None:
    """Return what is missing, if that is what the server says."""
    # enable_notify_insert() looks for the queue itself; all else that pgmq refuses was refused before.
    if queue and isinstance(said, errors.UndefinedTable | errors.RaiseException):
        return QueueMissing.of(queue, alias)
    if isinstance(said, MISSING):
        return PgmqMissing.when_used(alias, reason(said))
    return None


def tables(execute: Execute, names: Sequence[str]) -> dict[str, bool]:
    """Return those of these tables of pgmq that are there, and whether it notifies of what is inserted."""
    return dict(execute(_TABLES, {"names": list(names)}))
