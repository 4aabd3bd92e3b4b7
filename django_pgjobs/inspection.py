"""The raw SQL that pages read: what is in the queues, without counting for long.

Invariant: it changes nothing, and each count ends at a number that it is given.
"""

from __future__ import annotations

from django_pgjobs.lifecycle import NOW
from django_pgjobs.statements import FIGURE, FREE, HEAD, JOB, KEYED, QUEUE, queue_names

# Run by windows: the first jobs with a key, by queue and priority, and whether the lanes of keys, of
# which no more than `lanes` are looked at, are all that there are. Raw: lanes (queue, key, priority) are
# found by jumping from one to the next. Index: pgjobs_job_keyed.
_LANE = f"select queue, concurrency_key, priority from {JOB} where {KEYED} and"
KEYED_BY_PRIORITY = f"""
with recursive lane(queue, key, priority, n) as (
    (select queue, concurrency_key, priority, 1 from {JOB}
    where {KEYED} and queue = coalesce(%(queue)s, queue)
    order by queue, concurrency_key, priority desc limit 1)
  union all
    select next.*, n + 1 from lane cross join lateral (
        ({_LANE} queue = lane.queue and concurrency_key = lane.key and priority < lane.priority
        order by priority desc limit 1)
      union all
        ({_LANE} queue = lane.queue and concurrency_key > lane.key
        order by concurrency_key, priority desc limit 1)
      union all
        ({_LANE} queue > lane.queue and %(queue)s is null
        order by queue, concurrency_key, priority desc limit 1)
      limit 1) next
    where n < %(lanes)s
)
select array(select job.id from (select * from lane order by queue, priority desc) lane
    cross join lateral (
        select id from {JOB} where {KEYED} and queue = lane.queue and concurrency_key = lane.key
            and priority = lane.priority order by run_at, id limit %(most)s) job
    limit %(most)s), count(*) < %(lanes)s from lane
"""

# Run by queues.depths(). Raw: lanes are found by jumping from one to the next, and each count ends at
# `most`; of jobs with a key, the first ones of each queue are counted, and `more` says that there may be
# others. Of queues with waiting jobs the first `queues` by name are found. Indexes: pgjobs_job_claim and
# pgjobs_job_keyed for what waits, pgjobs_job_running and pgjobs_job_finished.
QUEUES = f"""
with recursive {queue_names("queues", FREE)},
{queue_names("keyed_queues", KEYED)},
named(name) as (
    select name from (
        (select name from queues limit %(queues)s)
        union (select name from keyed_queues limit %(queues)s)) first
    where name is not null order by name limit %(queues)s
),
lane(queue, priority, run_at) as (
    select first.* from named cross join lateral (
        select queue, priority, run_at from {JOB}
        where {FREE} and queue = named.name {HEAD}) first
  union all
    select next.* from lane cross join lateral (
        select queue, priority, run_at from {JOB}
        where {FREE} and queue = lane.queue and priority < lane.priority {HEAD}) next
),
free as (
    select lane.queue as name, least(sum(due.jobs), %(most)s) as due,
        least(sum(later.jobs), %(most)s) as later,
        min(lane.run_at) filter (where lane.run_at <= {NOW}) as oldest, false as more
    from lane
    cross join lateral (select count(*) as jobs from (
        select from {JOB} where {FREE} and queue = lane.queue
            and priority = lane.priority and run_at <= {NOW} limit %(most)s) job) due
    cross join lateral (select count(*) as jobs from (
        select from {JOB} where {FREE} and queue = lane.queue
            and priority = lane.priority and run_at > {NOW} limit %(most)s) job) later
    group by lane.queue
),
keyed as (
    select name, count(*) filter (where run_at <= {NOW}) as due,
        count(*) filter (where run_at > {NOW}) as later,
        min(run_at) filter (where run_at <= {NOW}) as oldest, count(*) = %(most)s as more
    from named cross join lateral (
        select run_at from {JOB} where {KEYED} and queue = name
        order by concurrency_key limit %(most)s) job
    group by name
),
waiting as (
    select name, least(sum(due), %(most)s) as due, least(sum(later), %(most)s) as later,
        min(oldest) as oldest, bool_or(more) as more
    from (select * from free union all select * from keyed) part group by name
),
active as (
    select queue as name, count(*) as jobs from {JOB} where status = 'running' group by queue
),
broken as (
    select queue as name, count(*) as jobs from (
        select queue from {JOB}
        where status = 'failed' and finished_at > {NOW} - interval '1 hour' limit %(most)s) job
    group by queue
),
known as (
    select name from waiting union select name from active union select name from broken
    union select name from {QUEUE} where paused_at is not null
    union select unnest(%(declared)s::text[])
)
select known.name, coalesce(due, 0), coalesce(later, 0), coalesce(active.jobs, 0),
    coalesce(broken.jobs, 0), oldest, coalesce(more, false), q.paused_at, coalesce(q.paused_by, '')
from known left join waiting using (name) left join active using (name) left join broken using (name)
left join {QUEUE} q on q.name = known.name order by known.name
"""

# Run by deploy_checks: the waiting jobs by kind and by the names of their arguments. Raw: names of a JSON
# object. It reads every waiting job, whichever way the server likes; what it groups is few.
WAITING = f"""
select kind, names, count(*), min(id) from (
    select kind, id, array(select jsonb_object_keys(payload) order by 1) as names
    from {JOB} where status = 'pending') job
group by kind, names
"""

# Run by admin.filters: the queues that have jobs, or had some of late, and those that somebody has
# paused; and the kinds of jobs that have run of late. Raw: names, and pairs of them, are found by jumping
# from one to the next, and no more than `most` in each place. Indexes: those of QUEUES and
# pgjobs_figure_names.
NAMES = f"""
with recursive {queue_names("queues", FREE)},
{queue_names("keyed_queues", KEYED)},
{queue_names("running_queues", "status = 'running'")},
noted(name) as (
    (select queue from {FIGURE} order by queue limit 1)
  union all
    select (select queue from {FIGURE} where queue > noted.name order by queue limit 1)
    from noted where noted.name is not null
),
pair(queue, kind) as (
    (select queue, kind from {FIGURE} order by queue, kind limit 1)
  union all
    select next.* from pair cross join lateral (
        select queue, kind from {FIGURE} where (queue, kind) > (pair.queue, pair.kind)
        order by queue, kind limit 1) next
)
(select 'queue', name from (
    (select name from queues limit %(most)s) union (select name from keyed_queues limit %(most)s)
    union (select name from running_queues limit %(most)s) union (select name from noted limit %(most)s)
    union (select name from {QUEUE} order by name limit %(most)s)
) queue where name <> '' order by name limit %(most)s)
union all
select distinct 'kind', kind from (select kind from pair limit %(most)s) kind where kind <> ''
"""
