"""The raw SQL of enqueue: new rows, of unique jobs only where nobody holds their key.

Invariant: nothing here fails over a key, and a job that runs is neither locked nor waited for; the clock
is the database's.
"""

from __future__ import annotations

import functools
import re

from django_pgjobs.lifecycle import NOW
from django_pgjobs.statements import JOB

_META = "coalesce(%(meta)s::jsonb, '{}')"
_RUN_AT = f"coalesce(%(run_at)s::timestamptz, {NOW} + make_interval(secs => %(delay)s))"

_NEEDS_NO_QUOTES = re.compile(r"[\w.:-]+", re.ASCII).fullmatch
_KEPT = 1_000  # statements, for projects that make up queues as they go


@functools.lru_cache(_KEPT)
def plain(kind: str, queue: str, priority: int, max_attempts: int, *, noted: bool) -> str | None:
    """Return the INSERT of a job that is due at once and about nothing; None where only INSERT will do.

    Run by enqueueing.insert(), with the payload, and the meta of a `noted` one. Raw: half the cost of Model.objects.create(). It is
    parsed and planned anew each time, so it leaves to the columns' defaults what most jobs do not say;
    and each parameter costs the client, so what the jobs of a kind have in common is written into it.
    No index.
    """
    if not (_NEEDS_NO_QUOTES(kind) and _NEEDS_NO_QUOTES(queue)):
        return None
    # What was matched, whatever an enum's member shows.
    names = f"'{str.__str__(kind)}', '{str.__str__(queue)}'"
    return f"""
insert into {JOB} (kind, queue, priority, max_attempts, payload{", meta" * noted})
values ({names}, {priority:d}, {max_attempts:d}, %s{", %s" * noted})
returning id, created_at
"""


# Run by enqueueing.insert() for any other. Raw: the database's clock decides when a delay is over.
# No index.
INSERT = f"""
insert into {JOB} (kind, queue, payload, priority, run_at, max_attempts, subject_type, subject_id,
        meta, concurrency_key)
values (%(kind)s, %(queue)s, %(payload)s::jsonb, %(priority)s, {_RUN_AT},
        %(max_attempts)s, %(subject_type)s, %(subject_id)s, {_META}, %(concurrency_key)s)
returning id, created_at, run_at
"""

# Run by enqueueing.insert_many(). Raw: one statement and one array for thousands of rows; COPY
# would be faster still, but knows neither RETURNING nor row security. No index.
INSERT_MANY = f"""
insert into {JOB} (kind, queue, payload, priority, run_at, max_attempts, subject_type, subject_id,
    concurrency_key)
select %(kind)s, %(queue)s, payload::jsonb, %(priority)s, {_RUN_AT},
       %(max_attempts)s, %(subject_type)s, %(subject_id)s, concurrency_key
from unnest(%(payloads)s::text[], %(concurrency_keys)s::text[])
    with ordinality as given(payload, concurrency_key, position)
order by position
returning id, run_at <= created_at
"""

# ----------------------------------------------------------------------------------- unique jobs

# As the partial index says it. What else is asked of these rows hides in a CASE: with old statistics the
# planner would take the index of pending or of finished jobs for it, and read all of them.
_KEYED = "unique_key = any(%(unique_keys)s::text[]) and unique_key is not null"

# Whether a job has had its key for as long as the rule says.
_OVER = f"""case when job.finished_at is null then false
        else job.created_at <= {NOW} - make_interval(secs => %(period)s) end"""

_HELD = f"select id, unique_key from {JOB} job where {_KEYED}"


def insert_unless_held(holders: str, conflict: str = "do nothing", more: str = "") -> str:
    """Return the INSERT of jobs whose keys others may hold; its rows say by position who has each.

    And whether this role may read the job that was found: a producer need not.

    Run by duplicates, with keys that differ. Raw: ON CONFLICT on a partial index, and one round trip.
    `holders` selects those that are left as they are, `more` answers for keys besides. A key whose holder
    comes or goes meanwhile may have no row in the answer. Keys are taken in one order, each at once, so
    that two batches cannot wait for each other; ids are drawn before, so that those of a batch follow its
    own order. Index: pgjobs_job_unique_key.
    """
    return f"""
with given as materialized (
    select coalesce(drawn, nextval(pg_get_serial_sequence('{JOB}', 'id'))) as id, given.*
    from unnest(%(unique_keys)s::text[], %(payloads)s::text[], %(concurrency_keys)s::text[],
            %(ids)s::bigint[])
        with ordinality as given(unique_key, payload, concurrency_key, drawn, position)
    order by position
),
{holders},
placed as (
    insert into {JOB} as job (id, kind, queue, payload, priority, run_at, max_attempts,
        subject_type, subject_id, meta, concurrency_key, unique_key)
    select id, %(kind)s, %(queue)s, payload::jsonb, %(priority)s, {_RUN_AT}, %(max_attempts)s,
        %(subject_type)s, %(subject_id)s, {_META}, concurrency_key, unique_key
    from given
    where not exists (select from holder where holder.unique_key = given.unique_key)
    order by unique_key
    on conflict (unique_key) where unique_key is not null {conflict}
    returning id, unique_key, created_at, run_at
)
select position, id, true, created_at, run_at, {_RUN_AT} <= {NOW}, true from placed join given using (id)
union all
select position, found.id, false, null, null, {_RUN_AT} <= {NOW}, has_table_privilege('{JOB}', 'select')
from (select id, unique_key from holder union all select id, unique_key from placed) found
join given using (unique_key) where found.id <> given.id
{more}"""


# For jobs that hold their keys until they are finished: nothing is locked.
INSERT_OR_FIND = insert_unless_held(f"holder as materialized ({_HELD})")

# For jobs that hold their keys until their start: one that stands for others must not start before
# their transactions are committed. Those share the lock; a claim passes it over, and one that is under
# way is waited for.
INSERT_OR_HOLD = insert_unless_held(
    f"""waiting as materialized (
    {_HELD} and case status when 'pending' then true else false end order by unique_key for key share
),
holder as materialized (
    select * from waiting union all {_HELD} and status <> 'pending'
)"""
)

_REPLACED = (
    *("payload", "queue", "priority", "run_at", "subject_type", "subject_id", "meta"),
    "concurrency_key",
)


def _set(value: str) -> str:
    return ", ".join(f"{column} = {value.format(column=column)}" for column in _REPLACED)


# For jobs that replace pending ones. Those who replace one job wait for each other.
INSERT_OR_REPLACE = insert_unless_held(
    f"holder as materialized ({_HELD} and status <> 'pending')",
    f"do update set {_set('excluded.{column}')} where job.status = 'pending'",
)

# For rules with a period. A job that has had its key for as long loses it, where a new one would be inserted:
# so each key is still taken once, in its turn. The answer says of it neither new nor old, and the key, which
# is that of this transaction alone, is asked for again with the id and the time that it was given: a batch keeps
# its order. The key is what the row had before the statement.
_FREED = f"""union all
select position, given.id, null, null, {_RUN_AT}, false, true
from placed join ({_HELD}) held using (id) join given on given.unique_key = held.unique_key
where placed.unique_key is null
"""
FREE_OR_FIND = insert_unless_held(
    f"holder as materialized ({_HELD} and not {_OVER})",
    f"do update set unique_key = null where {_OVER}",
    _FREED,
)
FREE_OR_REPLACE = insert_unless_held(
    f"holder as materialized ({_HELD} and status <> 'pending' and not {_OVER})",
    f"""do update set unique_key = case when {_OVER} then null else job.unique_key end,
        {_set(f"case when {_OVER} then job.{{column}} else excluded.{{column}} end")}
    where job.status = 'pending' or {_OVER}""",
    _FREED,
)
