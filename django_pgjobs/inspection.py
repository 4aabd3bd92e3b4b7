"""The raw SQL that pages read: what is in the queues, without counting for long.

Invariant: it changes nothing, and each count ends at a number that it is given.
"""

from __future__ import annotations

from django_pgjobs.lifecycle import NOW
from django_pgjobs.statements import FREE, HEAD, JOB, KEYED, QUEUE, queue_names

# Run by queues.depths(). Raw: lanes are found by jumping from one to the next, and each count ends at
# `most`; of jobs with a key, the first ones of each queue are counted. Indexes: pgjobs_job_claim and
# pgjobs_job_keyed for what waits, pgjobs_job_running and pgjobs_job_finished.
QUEUES = f"""
with recursive {queue_names("queues", FREE)},
{queue_names("keyed_queues", KEYED)},
lane(queue, priority, run_at) as (
    select first.* from queues cross join lateral (
        select queue, priority, run_at from {JOB}
        where {FREE} and queue = queues.name {HEAD}) first
  union all
    select next.* from lane cross join lateral (
        select queue, priority, run_at from {JOB}
        where {FREE} and queue = lane.queue and priority < lane.priority {HEAD}) next
),
free as (
    select lane.queue as name, least(sum(due.jobs), %(most)s) as due,
        least(sum(later.jobs), %(most)s) as later,
        min(lane.run_at) filter (where lane.run_at <= {NOW}) as oldest
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
        min(run_at) filter (where run_at <= {NOW}) as oldest
    from keyed_queues cross join lateral (
        select run_at from {JOB} where {KEYED} and queue = name
        order by concurrency_key limit %(most)s) job
    group by name
),
waiting as (
    select name, least(sum(due), %(most)s) as due, least(sum(later), %(most)s) as later,
        min(oldest) as oldest
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
    coalesce(broken.jobs, 0), oldest, q.paused_at, coalesce(q.paused_by, '')
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
