"""The raw SQL that looks for jobs with limits: when is one due, and which lanes have room.

A lane is (queue, key, priority), or (queue, priority) in a limited queue. A look visits lanes, not jobs,
so a key costs the same whether one job waits or 100,000.

Invariant: nothing is changed and nothing is claimed by it: the answers are guesses, and `gates` counts
under locks.
"""

from __future__ import annotations

from django_pgjobs.free_lanes import lanes_of
from django_pgjobs.gates import (
    ANY_KIND,
    FIRST,
    KEY_DEBT,
    RULES,
    RUNNING,
    SLOTS,
    UNLIMITED,
    near_of_kinds,
    queue_debt,
    wanted,
)
from django_pgjobs.lifecycle import NOW
from django_pgjobs.obstacles import STARTS, by_transaction, serves
from django_pgjobs.statements import (
    ALL_KEYED_QUEUES,
    HEAD,
    JOB,
    KEYED,
    NAMED_QUEUES,
    NOT_PAUSED,
    UNPAUSED,
    WORKER,
    queue_names,
)

SCAN = 500  # lanes that one look passes at most
FEW = 200  # due jobs of a queue; if there are no more, their lanes are all that a look may find

# By its own words, so that no other statement is given the index of their times: with old statistics the
# server would read all jobs of a queue in it for those of a key.
_TIMED = "status = 'pending' and concurrency_key > ''"


def _mine(*, all_queues: bool) -> str:
    return "not name = any(%(exclude)s::text[])" if all_queues else "name = any(%(queues)s::text[])"


def survey(*, all_queues: bool) -> str:
    """Return the part of the full claim that finds when what has limits is due, as `limited(run_at)`.

    Run by claims.Claimer: an idle worker makes no further statement. One probe for each queue that has
    jobs with keys, whatever their number, and one for each lane of a limited queue.
    Indexes: pgjobs_job_keyed_due and pgjobs_job_claim.
    """
    limited = "%(limited_queues)s::text[]"
    return f"""keyed(name, run_at) as (
    (select queue, run_at from {JOB} where {_TIMED} order by queue, run_at limit 1)
  union all
    select next.* from keyed cross join lateral (
        select queue, run_at from {JOB} where {_TIMED} and queue > keyed.name
        order by queue, run_at limit 1) next
),
{lanes_of(f"(select name from unnest({limited}) queues(name) where {UNPAUSED}) served", "unkeyed")},
limited(run_at) as (
    select run_at from unkeyed
  union all
    select run_at from keyed queues where ({_mine(all_queues=all_queues)} or name = any({limited})) and {UNPAUSED}
)"""


def find(*, all_queues: bool, among_due: bool = False) -> str:
    """Return the statement that looks for lanes of which a job may be claimed.

    Run by limited_claims. Lanes with keys are visited in turn from a place in their index, SCAN at most:
    each costs two probes, its running jobs are counted only if its head is due, and a lane without a
    free slot is left out, and so is one that is held up: by a job of the key that comes before its own, in
    whatever queue somebody serves, and whose limits are stricter. It would never find the key free enough
    otherwise. They are passed only until there are enough of them; where there is none, the
    answer says how long the first token takes. Or, `among_due`, the lanes of the FEW jobs of each queue are
    visited that became due last, in no order; where there may be others, a last row says so by its number.
    Raw: jumps from lane to lane, as the full claim. Every scalar is a subquery of its own: a join could
    make the server read all lanes before it gives the first.
    Indexes: pgjobs_job_keyed, or pgjobs_job_keyed_due; pgjobs_job_order, pgjobs_job_claim,
    pgjobs_job_running and pgjobs_job_running_keyed.
    """
    served = ALL_KEYED_QUEUES if all_queues else NAMED_QUEUES
    return f"""
with recursive {RULES},
open as materialized (
    select name, slots, every, burst,
        {UNLIMITED} - (select count(*) from {JOB}
            where status = 'running' and queue = queues.name) as free,
        case when every > 0 then greatest(0, {queue_debt("queues")} - every * burst) else 0 end as wait
    from limited queues where {NOT_PAUSED}
),
{served},
{lanes_of("(select name from open where free > 0) served", "unkeyed")},
{_AMONG_DUE if among_due else _IN_TURN},
{_line(_mine(all_queues=all_queues))},
passed as materialized (
    select lane.n, lane.queue, lane.key, lane.kind, lane.priority,
        coalesce(rule.ordered, false) as ordered,
        case when lane.run_at > {NOW} or not {wanted("lane.kind")} then false
            when rule.ordered and not ({_IS_FIRST}) then false
            when (select running >= least({SLOTS}, least) from ({RUNNING}) key) then false
            else not ((own.slots > 1 or own.pace is not null) and exists ({_HOLDER})) end as free,
        case when rule.every > 0 then greatest(0, {KEY_DEBT} - rule.every * rule.burst) else 0 end as wait
    from visited lane
    left join lateral (select * from rule where rule.kind = lane.kind limit 1) rule on true
    cross join lateral (select {SLOTS} as slots, {_PACE} as pace) own
),
found as materialized (
    select * from passed where (free and wait = 0) or n = {SCAN} limit %(limit)s
)
select 0 as n, queue, null::text as key, null::text as kind, priority, false as ordered, true as free,
    open.wait
    from unkeyed join open on open.name = queue where run_at <= {NOW}
        and ({ANY_KIND} or exists ({near_of_kinds("unkeyed")}))
union all
select 0, name, null, null, null, false, false, wait from open where free > 0 and wait > 0 and (
    select run_at <= {NOW} from {JOB} where {_TIMED} and queue = open.name order by run_at limit 1)
union all
select * from found
union all
select 0, '', null, null, null, false, false, min(wait) from passed
    where free and not exists (select from found where free and wait = 0) having min(wait) > 0
{_MORE_ARE_DUE if among_due else ""}
"""


_IS_FIRST = f"""select first.queue = lane.queue and first.priority = lane.priority
    and first.run_at <= {NOW} from ({FIRST}) first"""


def _line(mine: str) -> str:
    """Return the part that finds the queues in which the jobs of a key stand in one line.

    Those that are paused, or that nobody serves, hold up nobody: it may be for ever.
    """
    somebody = f"{STARTS} and {serves('queues.name')} and not {by_transaction('queues.name')}"
    return f"""{queue_names("keyed", KEYED)},
line as materialized (
    select name from keyed queues where name is not null and {UNPAUSED}
        and ({mine} or exists (select from {WORKER} w where {somebody}))
)"""


# How strict a rate is: by how far ahead of now the gate may be, and of the same, by its pace.
_PACE = "case when rule.every > 0 then array[rule.every * rule.burst, -rule.every] end"

# Of each queue of the line, the first due job of the key that may come before the lane's own.
_BEFORE = (
    f"{KEYED} and queue = line.name and concurrency_key = lane.key and priority >= lane.priority"
)
_FOREMOST = f"""
    with recursive head(priority, run_at, id, kind) as (
        (select priority, run_at, id, kind from {JOB} where {_BEFORE} {HEAD})
      union all
        select next.* from head cross join lateral (
            select priority, run_at, id, kind from {JOB}
            where {_BEFORE} and priority < head.priority {HEAD}) next
        where head.run_at > {NOW}
    )
    select * from head where run_at <= {NOW} limit 1"""
_HOLDER = f"""select from line cross join lateral ({_FOREMOST}) head
    left join lateral (select * from rule where rule.kind = head.kind limit 1) rule on true
    where (head.priority > lane.priority or head.run_at < lane.run_at)
        and ({SLOTS} < own.slots or {_PACE} < own.pace)
        and (not coalesce(rule.ordered, false) or head.id = (select id from ({FIRST}) first))"""

_OPEN = "not exists (select from open where name = served.name and (free <= 0 or wait > 0))"

_LANE = "queue, concurrency_key, priority, run_at, kind"

# The lanes with keys of one queue, in the order of their index, from a place in it.
_JUMPS = f"""
    with recursive lane(queue, key, priority, run_at, kind) as (
        (select {_LANE} from {JOB} where {KEYED} and queue = served.name
            and concurrency_key > case when served.name = %(from_queue)s then %(from_key)s else '' end
         order by concurrency_key, priority desc, run_at, id limit 1)
      union all
        select next.* from lane cross join lateral (
            (select {_LANE} from {JOB} where {KEYED} and queue = lane.queue
                and concurrency_key = lane.key and priority < lane.priority {HEAD})
            union all
            (select {_LANE} from {JOB} where {KEYED} and queue = lane.queue
                and concurrency_key > lane.key
             order by concurrency_key, priority desc, run_at, id limit 1)
            order by concurrency_key limit 1) next
    )
    select * from lane limit {SCAN}"""

# All that chooses queues stands before their order: a join behind it could lose it.
_IN_TURN = f"""visited as (
    select row_number() over () as n, lane.*
    from (select name from served where name >= %(from_queue)s and {_OPEN} order by name) served
    cross join lateral ({_JUMPS}) lane
    limit {SCAN}
)"""

_AMONG_DUE = f"""due as materialized (
    select job.* from served cross join lateral (
        select {_LANE}, id from {JOB} where {_TIMED} and queue = served.name and run_at <= {NOW}
        order by run_at desc limit {FEW}) job
    where {_OPEN}
),
visited as (
    select row_number() over () as n, lane.* from (
        select distinct on (queue, concurrency_key, priority)
            queue, concurrency_key as key, priority, run_at, kind
        from due order by queue, concurrency_key, priority desc, run_at, id) lane
    order by random()
)"""
_MORE_ARE_DUE = f"""union all
select {SCAN}, '', null, null, null, false, false, null
    where exists (select from due group by queue having count(*) = {FEW})"""
