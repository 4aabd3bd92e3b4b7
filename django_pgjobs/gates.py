"""The raw SQL of limits: lock the gates before what may be claimed, count, and claim.

A gate is a row for each key, and each limited queue, in use. It holds no count: the running rows are
the truth. It is what a claim locks before it counts, so that nobody else is counting, and it keeps the
time that rates need.

Invariant: a job with a key, or of a limited queue, is claimed by CLAIM alone; CLAIM counts in a statement
of its own, after the one that locked its gates, and so sees all that those who held them before have
claimed. Lock and count in one statement, and the count is as old as the wait for the lock.
"""

from __future__ import annotations

from collections.abc import Sequence

from django_pgjobs.lifecycle import MOVES, NOW
from django_pgjobs.statements import FREE, JOB, KEYED, LIVING, NEAR, WAITED, of_kinds

GATE = "django_pgjobs_gate"

_NO_LIMIT = 1_000_000_000

# A key whose kind declares nothing here is one job at a time. Where kinds share a key, the smallest limit
# counts of those that are at work.
SLOTS = f"coalesce(rule.slots, case when rule.kind is null then 1 else {_NO_LIMIT} end)"
RUNNING = f"""select count(*) as running, min({SLOTS}) as least
    from {JOB} job left join rule using (kind)
    where job.status = 'running' and job.concurrency_key = lane.key"""
UNLIMITED = f"coalesce(slots, {_NO_LIMIT})"

# What this worker's code and settings say. Arrays of records as text: one value to bind for all.
RULES = """rule as materialized (
    select * from jsonb_to_recordset(%(rules)s::jsonb)
        rule(kind text, slots int, every bigint, burst int, ordered bool)
),
limited as materialized (
    select * from jsonb_to_recordset(%(limited)s::jsonb)
        limited(name text, slots int, every bigint, burst int)
)"""

# A gate's debt: the microseconds from now to `next_at`. Each start adds `every` to it, and the next one
# may follow while it is no more than `burst` times as much: the generic cell rate algorithm.
# `rates` says by which rates it was made, and how far behind `next_at` the last start of each was. What a
# worker's code does not declare, as before or after a deploy, is no debt to it. Of none, all of it is.
_MADE_BY = "select rule.kind || ' ' || rule.every from rule"


def debt_of(gate: str, declared: str) -> str:
    """Return the debt of a gate, as far as these rates have made it."""
    return f"""greatest(0, coalesce((
        select 1000000 * extract(epoch from next_at - {NOW}) - case when rates = '{{}}' then 0 else (
            select min(behind::numeric) from jsonb_each_text(rates) made(rate, behind)
            where rate in ({declared})) end
        from {GATE} where name = {gate}), 0))"""


def queue_debt(queue: str) -> str:
    """Return the debt of a queue, a row of `limited`."""
    return debt_of(f"'queue:' || {queue}.name", f"' ' || {queue}.every")


KEY_DEBT = debt_of("'key:' || lane.key", _MADE_BY)

# The first of a key in order: nobody else goes.
FIRST = f"""select id, kind, queue, priority, run_at from {JOB}
    where {KEYED} and concurrency_key = lane.key order by id limit 1"""

# Run by limited_claims before CLAIM, as the first two statements of its transaction. A gate that another
# claim holds is passed over; only whoever enters one for the first time, as another does, waits for that
# moment. Without the `not exists` everybody would: ON CONFLICT waits for whoever is updating the row. Raw:
# no wait, and the mark by which CLAIM knows which gates it got. Index: the primary key.
ENTER = f"""
insert into {GATE} (name) select name from unnest(%(gates)s::text[]) gates(name)
where not exists (select from {GATE} gate where gate.name = gates.name) order by name
on conflict do nothing
"""
LOCK = f"""
update {GATE} set visit = %(visit)s where name = any(array(
    select name from {GATE} where name = any(%(gates)s::text[]) order by name for update skip locked))
"""

# A worker may have room for handlers of one sort only: for these kinds, or for all but these.
ANY_KIND = "%(kinds)s::text[] is null"


def of_sort(statement: str, kinds: Sequence[str] | None) -> str:
    """Say in the statement's own words whether all kinds are wanted.

    As a value it would have the server plan it anew each time, which takes longer than to run it.
    """
    return statement.replace(ANY_KIND, "true" if kinds is None else "false")


def wanted(kind: str) -> str:
    """Say whether this kind is one of those."""
    return f"({ANY_KIND} or {of_kinds(kind)})"


def near_of_kinds(lane: str) -> str:
    """Return the wanted ones among the first due jobs of a lane without keys: no more are looked at."""
    return f"""select id from (
        select id, kind from {JOB} where {FREE} and queue = {lane}.queue
            and priority = {lane}.priority and run_at <= {NOW} order by run_at, id limit {NEAR}) job
    where {of_kinds("kind")}"""


_MINE = f"select name from {GATE} where visit = %(visit)s"
_OF_LANE = f"queue = lane.queue and priority = lane.priority and run_at <= {NOW}"
_LOCKED = "order by run_at, id limit room.seats for update skip locked"


def _tokens(debt: str) -> str:
    """Say how many may start now, as far as the rate goes."""
    return f"""case when every > 0 then floor((every * burst - {debt})::numeric / every) + 1
        else {_NO_LIMIT} end"""


# What a claim leaves at a gate: the time that it has reached, or the later one of a rate that is not declared
# here, and how far behind that each rate is which is not paid yet.
_US = "1000000 * extract(epoch from {time})"
_NOW_US = _US.format(time=NOW)
_LATEST = f"greatest(gate.next_at, {NOW} + spent.debt * interval '1 microsecond')"
_LATEST_US = _US.format(time=_LATEST)

# Run by limited_claims. A place is a key in a queue, or what has no key in a limited queue. It gets as
# many seats as its limits allow, and its queue's, the first of every place before the second of any; so
# many of its jobs are locked, by priority, time and id. What somebody else has locked is passed over, but
# not the first of a key in order. The kinds of a key may have limits of their own: a job goes if there is
# room for it and for all before it, so that none is passed by those behind it for good; one that is not
# wanted now holds them up too.
# Raw: all of it must see one moment. Indexes: pgjobs_job_keyed, pgjobs_job_order, pgjobs_job_claim,
# pgjobs_job_running, pgjobs_job_running_keyed and the primary key.
CLAIM = f"""
with {RULES},
lane as materialized (
    select lane.* from jsonb_to_recordset(%(lanes)s::jsonb)
        lane(position int, queue text, key text, kind text, priority smallint, ordered bool)
    where {LIVING}
        and (key is null or 'key:' || key in ({_MINE}))
        and (queue not in (select name from limited) or 'queue:' || queue in ({_MINE}))
),
key as materialized (
    select lane.key, running.*, {KEY_DEBT} as debt
    from (select distinct key from lane where key is not null) lane
    cross join lateral ({RUNNING}) running
),
queue as materialized (
    select name, {UNLIMITED} - (select count(*) from {JOB}
            where status = 'running' and queue = limited.name) as free,
        {_tokens("debt")} as tokens, debt, every
    from limited cross join lateral (select {queue_debt("limited")} as debt) gate
    where name in (select queue from lane)
),
place as (
    select distinct on (queue, key) position, queue, key, kind from lane
    order by queue, key, priority desc
),
seat as (
    select place.queue, key, position, turn,
        row_number() over (partition by place.queue order by turn, position) as nth
    from place left join rule using (kind) left join key using (key)
    cross join lateral generate_series(1, greatest(0, least(%(limit)s::int,
        case when running is not null then least({SLOTS}, least) - running end,
        case when running is not null then {_tokens("debt")} end))::int) turn
),
room as materialized (
    select queue, key, count(*) as seats from (
        select seat.* from seat left join queue on queue.name = seat.queue
        where queue.name is null or (nth <= queue.free and nth <= queue.tokens)
        order by turn, position limit %(limit)s::int) seat
    group by queue, key
),
near as materialized (
    select lane.key, lane.queue, ordered, seats, job.*
    from lane join room using (queue, key) cross join lateral (
        select id, kind, priority, run_at from {JOB}
        where {KEYED} and concurrency_key = lane.key and {_OF_LANE} {_LOCKED}) job
    where not ordered
  union all
    select lane.key, lane.queue, ordered, seats, job.*
    from lane join room using (queue, key) cross join lateral (
        select id, kind, priority, run_at from {JOB}
        where id = (select id from ({FIRST}) first) and status = 'pending' and queue = lane.queue
            and run_at <= {NOW} for update skip locked) job
    where ordered
  union all
    select null, lane.queue, false, seats, job.*
    from lane join room on room.queue = lane.queue and room.key is null cross join lateral (
        select id, kind, priority, run_at from {JOB} where {FREE} and {_OF_LANE} {_LOCKED}) job
    where lane.key is null and {ANY_KIND}
  union all
    select null, lane.queue, false, seats, job.*
    from lane join room on room.queue = lane.queue and room.key is null cross join lateral (
        select id, kind, priority, run_at from {JOB}
        where id = any(array({near_of_kinds("lane")} limit room.seats)) and status = 'pending'
        for update skip locked) job
    where lane.key is null and not {ANY_KIND}
),
asked as (
    select id, seats, row_number() over place as rank,
        min(case when running is null then {_NO_LIMIT} else least({SLOTS}, least) - running end)
            over place as free,
        min(case when running is null then {_NO_LIMIT} else {_tokens("debt")} end)
            over place as tokens,
        bool_and(near.ordered or running is null or not coalesce(rule.ordered, false)) over place
            as in_order,
        bool_and(key is null or {wanted("kind")}) over place as wanted
    from near left join rule using (kind) left join key using (key)
    window place as (partition by key, case when key is null then queue end
        order by priority desc, run_at, id)
),
claimed as (
    update {JOB} set {MOVES["claim"].assignments}, locked_by = %(worker)s
    where id = any(array(select id from asked
        where rank <= seats and rank <= free and rank <= tokens and in_order and wanted))
    returning id, kind, payload, attempts, attempts_before, max_attempts, claims, queue, priority,
        run_at, concurrency_key
),
spent as (
    select 'key:' || concurrency_key as gate, debt + sum(coalesce(every, 0)) as debt,
        jsonb_object_agg(kind || ' ' || every, 0) filter (where every > 0) as rates
    from claimed left join rule using (kind) join key on key.key = concurrency_key
    group by concurrency_key, debt
  union all
    select 'queue:' || name, debt + sum(every),
        jsonb_object_agg(' ' || every, 0) filter (where every > 0)
    from claimed join queue on name = queue group by name, debt
),
charged as (
    update {GATE} gate set next_at = {_LATEST}, rates = coalesce((
        select jsonb_object_agg(rate, {_LATEST_US} - at) from (
            select rate, {_US.format(time="gate.next_at")} - behind::numeric as at
            from jsonb_each_text(gate.rates) made(rate, behind)
            where not coalesce(spent.rates, '{{}}') ? rate
          union all
            select jsonb_object_keys(spent.rates), {_NOW_US} + spent.debt) reached
        where at > {_NOW_US}), '{{}}')
    from spent where gate.name = spent.gate
)
select id, kind, payload, attempts, attempts_before, max_attempts, claims, queue, {WAITED}
from claimed order by priority desc, run_at, id
"""

# Run by reaper. A gate that nobody has used for an hour, and whose debt is paid, is as good as none. One
# that is locked is in use. Raw: batches, and no wait.
PRUNE = f"""
delete from {GATE} where name = any(array(
    select name from {GATE} where next_at < {NOW} - interval '1 hour'
    limit %(limit)s for update skip locked))
"""
