"""The raw SQL of limits: find what may be claimed, lock the gates before it, count, and claim.

A gate is a row for each key, and each limited queue, in use. It holds no count: the running rows are
the truth. It is what a claim locks before it counts, so that nobody else is counting, and it keeps the
time that rates need.

Invariant: a job with a key, or of a limited queue, is claimed by CLAIM alone; CLAIM counts in a statement
of its own, after the one that locked its gates, and so sees all that those who held them before have
claimed. Lock and count in one statement, and the count is as old as the wait for the lock.
"""

from __future__ import annotations

from django_pgjobs.lifecycle import MOVES, NOW
from django_pgjobs.statements import (
    ALL_KEYED_QUEUES,
    HEAD,
    JOB,
    KEYED,
    LIVING,
    NAMED_QUEUES,
    NOT_PAUSED,
    WAITED,
    lanes_of,
)

GATE = "django_pgjobs_gate"
SCAN = 500  # lanes that one look passes at most

_NO_LIMIT = 1_000_000_000

# A key whose kind declares nothing here is one job at a time. Where kinds share a key, the smallest limit
# counts of those that are at work.
_SLOTS = f"coalesce(rule.slots, case when rule.kind is null then 1 else {_NO_LIMIT} end)"
_RUNNING = f"""select count(*) as running, min({_SLOTS}) as least
    from {JOB} job left join rule using (kind)
    where job.status = 'running' and job.concurrency_key = lane.key"""
_UNLIMITED = f"coalesce(slots, {_NO_LIMIT})"

# What this worker's code and settings say. Arrays of records as text: one value to bind for all.
_RULES = """rule as materialized (
    select * from jsonb_to_recordset(%(rules)s::jsonb)
        rule(kind text, slots int, every bigint, burst int, ordered bool)
),
limited as materialized (
    select * from jsonb_to_recordset(%(limited)s::jsonb)
        limited(name text, slots int, every bigint, burst int)
)"""

# A gate's debt: the microseconds from now to `next_at`. Each start adds `every` to it, and the next one
# may follow while it is no more than `burst` times as much: the generic cell rate algorithm.
_DEBT = f"""greatest(0, coalesce(1000000 * extract(epoch from (
    select next_at from {GATE} where name = {{gate}}) - {NOW}), 0))"""
_KEY_DEBT = _DEBT.format(gate="'key:' || lane.key")
_QUEUE_DEBT = _DEBT.format(gate="'queue:' || limited.name")


def find(*, all_queues: bool) -> str:
    """Return the statement that looks for lanes of which a job may be claimed, and changes nothing.

    Run by limited_claims. A lane is (queue, key, priority), or (queue, priority) in a limited queue.
    Those with keys are visited in turn from a place in their index, SCAN at most: each costs two probes,
    its running jobs are counted only if its head is due, and a lane without a free slot is left out. So
    a key costs the same whether one job waits or 100,000. The answer is a guess; CLAIM decides. Lanes
    are passed only until there are enough of them; where there is none, the answer says how long the
    first token takes.
    Raw: jumps from lane to lane, as the full claim. Every scalar is a subquery of its own: a join could
    make the server read all lanes before it gives the first.
    Indexes: pgjobs_job_keyed, pgjobs_job_order, pgjobs_job_claim, pgjobs_job_running and
    pgjobs_job_running_keyed.
    """
    served = ALL_KEYED_QUEUES if all_queues else NAMED_QUEUES
    debt = _DEBT.format(gate="'queue:' || queues.name")
    return f"""
with recursive {_RULES},
open as materialized (
    select name, slots, every, burst,
        {_UNLIMITED} - (select count(*) from {JOB}
            where status = 'running' and queue = queues.name) as free,
        case when every > 0 then greatest(0, {debt} - every * burst) else 0 end as wait
    from limited queues where {NOT_PAUSED}
),
{served},
{lanes_of("(select name from open where free > 0) served")},
visited as (
    select row_number() over () as n, lane.*
    from (select name from served order by name) served
    cross join lateral ({_jumps("served.name")}) lane
    where served.name >= %(from_queue)s
        and not exists (select from open where name = served.name and (free <= 0 or wait > 0))
    limit {SCAN}
),
passed as materialized (
    select lane.n, lane.queue, lane.key, lane.priority, coalesce(rule.ordered, false) as ordered,
        case when lane.run_at > {NOW} then false
            when rule.ordered and not ({_IS_FIRST}) then false
            else (select running < least({_SLOTS}, least) from ({_RUNNING}) key) end as free,
        case when rule.every > 0 then greatest(0, {_KEY_DEBT} - rule.every * rule.burst) else 0 end as wait
    from visited lane
    left join lateral (select * from rule where rule.kind = lane.kind limit 1) rule on true
),
found_keyed as materialized (
    select * from passed where (free and wait = 0) or n = {SCAN} limit %(limit)s
)
select 0 as n, queue, null::text as key, priority, false as ordered, true as free, open.wait
    from found join open on open.name = queue where run_at <= {NOW}
union all
select 0, name, null, null, false, false, wait from open where free > 0 and wait > 0 and exists (
    select from (select run_at from {JOB} where {KEYED} and queue = open.name
        order by concurrency_key limit {SCAN}) job
    where run_at <= {NOW})
union all
select * from found_keyed
union all
select 0, '', null, null, false, false, min(wait) from passed
    where free and not exists (select from found_keyed where free and wait = 0) having min(wait) > 0
"""


_FIRST = f"""select id, kind, queue, priority, run_at from {JOB}
    where {KEYED} and concurrency_key = lane.key order by id limit 1"""
_IS_FIRST = f"""select first.queue = lane.queue and first.priority = lane.priority
    and first.run_at <= {NOW} from ({_FIRST}) first"""


def _jumps(queue: str) -> str:
    """Return the lanes with keys of one queue, in the order of their index, from a place in it."""
    columns = "queue, concurrency_key, priority, run_at, kind"
    return f"""
    with recursive lane(queue, key, priority, run_at, kind) as (
        (select {columns} from {JOB} where {KEYED} and queue = {queue}
            and concurrency_key > case when {queue} = %(from_queue)s then %(from_key)s else '' end
         order by concurrency_key, priority desc, run_at, id limit 1)
      union all
        select next.* from lane cross join lateral (
            (select {columns} from {JOB} where {KEYED} and queue = lane.queue
                and concurrency_key = lane.key and priority < lane.priority {HEAD})
            union all
            (select {columns} from {JOB} where {KEYED} and queue = lane.queue
                and concurrency_key > lane.key
             order by concurrency_key, priority desc, run_at, id limit 1)
            order by concurrency_key limit 1) next
    )
    select * from lane limit {SCAN}"""


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

_MINE = f"select name from {GATE} where visit = %(visit)s"
_OF_LANE = f"queue = lane.queue and priority = lane.priority and run_at <= {NOW}"
_OLDEST = "order by run_at, id limit %(limit)s::int"


def _tokens(debt: str) -> str:
    """Say how many may start now, as far as the rate goes."""
    return f"""case when every > 0 then floor((every * burst - {debt})::numeric / every) + 1
        else {_NO_LIMIT} end"""


# Run by limited_claims. The jobs of a key come by priority, time and id; one goes if there is room for it
# and for all before it, so that no job is passed by those behind it for good. Then the same for its queue,
# the first of every key before the second of any. What is claimed is locked at last, and checked again:
# somebody may be cancelling it. Raw: all of it must see one moment.
# Indexes: as find().
CLAIM = f"""
with {_RULES},
lane as materialized (
    select lane.* from jsonb_to_recordset(%(lanes)s::jsonb)
        lane(position int, queue text, key text, priority smallint, ordered bool)
    where {LIVING}
        and (key is null or 'key:' || key in ({_MINE}))
        and (queue not in (select name from limited) or 'queue:' || queue in ({_MINE}))
),
near(position, queue, key, ordered, id, kind, priority, run_at) as materialized (
    select lane.position, lane.queue, lane.key, lane.ordered, job.*
    from lane cross join lateral (
        select id, kind, priority, run_at from {JOB}
        where {KEYED} and concurrency_key = lane.key and {_OF_LANE} {_OLDEST}) job
    where not lane.ordered and lane.key is not null
  union all
    select lane.position, lane.queue, lane.key, lane.ordered, first.id, first.kind, first.priority, first.run_at
    from lane cross join lateral ({_FIRST}) first
    where lane.ordered and first.queue = lane.queue and first.run_at <= {NOW}
  union all
    select lane.position, lane.queue, null, false, job.*
    from lane cross join lateral (
        select id, kind, priority, run_at from {JOB}
        where status = 'pending' and concurrency_key is null and {_OF_LANE} {_OLDEST}) job
    where lane.key is null
),
key as materialized (
    select lane.key, running.*, {_KEY_DEBT} as debt
    from (select distinct key from lane where key is not null) lane
    cross join lateral ({_RUNNING}) running
),
asked as (
    select near.*, row_number() over place as rank,
        min(case when near.key is null then {_NO_LIMIT}
            else least({_SLOTS}, key.least) - running end) over place as free,
        min(case when near.key is null then {_NO_LIMIT} else {_tokens("debt")} end) over place as tokens,
        bool_and(near.ordered or not coalesce(rule.ordered and near.key is not null, false)) over place
            as in_order
    from near left join rule on rule.kind = near.kind left join key on key.key = near.key
    window place as (partition by near.key, case when near.key is null then near.queue end
        order by near.priority desc, near.run_at, near.id)
),
queue as materialized (
    select name, {_UNLIMITED} - (select count(*) from {JOB}
            where status = 'running' and queue = limited.name) as free,
        {_tokens(_QUEUE_DEBT)} as tokens
    from limited where name in (select queue from lane)
),
fitting as (
    select *, row_number() over (partition by queue order by rank, position) as turn from asked
    where rank <= free and rank <= tokens and in_order
),
due as materialized (
    select id from {JOB} where id = any(array(
        select fitting.id from fitting left join queue on queue.name = fitting.queue
        where queue.name is null or (turn <= queue.free and turn <= queue.tokens)
        order by rank, position limit %(limit)s::int))
    and status = 'pending' and run_at <= {NOW} for update skip locked
),
claimed as (
    update {JOB} set {MOVES["claim"].assignments}, locked_by = %(worker)s
    where id = any(array(select id from due))
    returning id, kind, payload, attempts, attempts_before, max_attempts, claims, queue, priority,
        run_at, concurrency_key
),
spent as (
    select 'key:' || concurrency_key as gate, sum(coalesce(every, 0)) as debt
    from claimed left join rule using (kind) where concurrency_key is not null group by 1
  union all
    select 'queue:' || queue, sum(every) from claimed join limited on limited.name = queue group by 1
),
charged as (
    update {GATE} set next_at = greatest(next_at, {NOW}) + spent.debt * interval '1 microsecond'
    from spent where name = spent.gate
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
