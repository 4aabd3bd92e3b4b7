"""The raw SQL of `explaining`: what stands between a job and its run.

Invariant: it changes nothing, reads by indexes alone, and each count ends at a number that it is given.
"""

from __future__ import annotations

from django_pgjobs.lifecycle import NOW
from django_pgjobs.statements import FREE, HEAD, JOB, KEYED, QUEUE, WORKER, queue_names

GATE = "django_pgjobs_gate"

# Run by explaining before all others, for its transaction. Where statistics are missing or old, the server would
# rather read and sort whatever an index finds than follow the one that has the order. A lock on a table, such as
# that of ALTER TABLE, is waited for so long and no longer.
SETTINGS = "select set_config('lock_timeout', '2s', true), " + ", ".join(
    f"set_config('{name}', 'off', true)"
    for name in ("enable_seqscan", "enable_bitmapscan", "enable_sort", "jit")
)

_SILENT = f"heartbeat_at < {NOW} - make_interval(secs => %(lease)s)"
STARTS = f"died_at is null and stopping_at is null and not ({_SILENT})"


def serves(queue: str) -> str:
    """Say whether a worker `w` takes jobs from a queue; plain SQL may have put any JSON there."""
    return f"""(jsonb_typeof(w.queues) is distinct from 'array' or w.queues ? {queue})
        and not coalesce(w.exclude ? {queue}, false)"""


def by_transaction(queue: str) -> str:
    """Say whether it claims them by transaction."""
    return f"coalesce(w.by_transaction = 'true' or w.by_transaction ? {queue}, false)"


# Run by explaining: the job, its worker, its queue, and the living workers that start jobs: how many
# there are, how many serve the queue, how many of these by lease, how many of these may know the kind; and
# what the latest of them says of limits. Raw: one statement, so one moment. Indexes: the primary keys, and
# pgjobs_worker_living.
STANDING = f"""
select j.*, w.id is null as unregistered, w.died_at is not null or {_SILENT} as silent,
    coalesce(w.host || ':' || w.pid || ' #' || w.id, '#' || j.locked_by) as worker,
    q.paused_at, q.paused_by,
    current_setting('transaction_read_only')::boolean
        or not has_any_column_privilege('{JOB}', 'update') as read_only,
    team.*
from (
    select kind, queue, status, concurrency_key, attempts, run_at, run_at > {NOW} as delayed, locked_at,
        locked_at < {NOW} - make_interval(secs => %(lease)s) as old, locked_by, cancel_requested_at,
        finished_at, last_error
    from {JOB} where id = %(id)s
) j
left join {WORKER} w on w.id = j.locked_by
left join {QUEUE} q on q.name = j.queue
cross join lateral (
    select count(*) as living, count(*) filter (where serves) as serving,
        count(*) filter (where serves and not by_transaction) as by_lease,
        count(*) filter (where serves and knows) as knowing,
        (array_agg(kinds order by id desc) filter (where serves))[1] as kinds,
        (array_agg(limited order by id desc) filter (where serves))[1] as limited
    from (
        select w.id, w.limited, case jsonb_typeof(w.kinds) when 'object' then w.kinds end as kinds,
            {serves("j.queue")} as serves,
            {by_transaction("j.queue")} as by_transaction,
            jsonb_typeof(w.kinds) is distinct from 'object' or w.kinds ? j.kind as knows
        from {WORKER} w where {STARTS}
    ) one
) team
"""

# Run by explaining, which gives the lock back with its transaction: no row is the answer where another one has
# locked it, as one does that runs the job. Raw: like its neighbours. Index: the primary key, as for the next.
PROBE = f"select id from {JOB} where id = %(id)s and status = 'pending' for update skip locked"

# Run by explaining: whose transaction that is, as far as it is known. The row names it, or a number of
# several that have locked it together; hence the look at what else it has locked.
LOCKED_BY = f"""
select holder.pid, activity.xact_start
from pg_locks holder join pg_stat_activity activity using (pid)
where holder.locktype = 'transactionid' and holder.granted
    and holder.transactionid = (select xmax from {JOB} where id = %(id)s)
    and exists (select from pg_locks used where used.pid = holder.pid and used.granted
        and used.locktype = 'relation' and used.relation = '{JOB}'::regclass)
limit 1
"""

# Run by explaining for a job with a key, or of a queue with a limit: the running jobs of the key with their
# kinds, those of the queue, the times that their rates have reached, and the first job of the key. Raw: one
# moment. Indexes: pgjobs_job_running_keyed, pgjobs_job_running, pgjobs_job_order, the primary key of gates.
HOLDS = f"""
select
    (select jsonb_agg(jsonb_build_array(id, kind)) from (select id, kind from {JOB}
        where status = 'running' and concurrency_key = %(key)s limit %(most)s) job),
    (select jsonb_agg(id) from (select id from {JOB}
        where status = 'running' and queue = %(queue)s limit %(most)s) job),
    (select next_at from {GATE} where name = 'key:' || %(key)s::text),
    (select rates from {GATE} where name = 'key:' || %(key)s::text),
    (select next_at from {GATE} where name = 'queue:' || %(queue)s::text),
    (select rates from {GATE} where name = 'queue:' || %(queue)s::text),
    (select id from (select id, concurrency_key from {JOB} where {KEYED} and concurrency_key >= %(key)s
        order by concurrency_key, id limit 1) first where concurrency_key = %(key)s),
    {NOW}
"""

_ME = f"me as materialized (select * from {JOB} where id = %(id)s)"


_OF_KEY = f"{KEYED} and concurrency_key = (select concurrency_key from me)"


def _ahead(waiting: str, among: str, first: str) -> str:
    """Return the count of due jobs that come before one, by priority, time and id, and `first` of them.

    They are counted in all the queues that one of the workers has which serve its own. In a lane of a higher
    priority they are all of them; the bound is one value in either case, so that the index ends where they
    do. In order, so that the server takes it, whatever its statistics say. A job whose row is locked, as while
    it runs where its queue is claimed by transaction, is not in line: a claim passes it over.
    """
    before = "case when lane.priority > me.priority then 'infinity' else me.run_at end, me.id"
    return f"""
with recursive {_ME},
team as materialized (
    select w.queues, w.exclude from {WORKER} w, me where {STARTS} and {serves("me.queue")}
),
{queue_names("names", waiting)},
locker as materialized (
    select transactionid from pg_locks where locktype = 'transactionid' and granted
),
served as (
    select name from names where name is not null
        and not exists (select from {QUEUE} q where q.name = names.name and q.paused_at is not null)
        and exists (select from team w where {serves("names.name")})
),
lane(queue, priority, run_at) as (
    select first.* from served cross join lateral (
        select queue, priority, run_at from {JOB} where {among} and queue = served.name {HEAD}) first
  union all
    select next.* from lane cross join lateral (
        select queue, priority, run_at from {JOB}
        where {among} and queue = lane.queue and priority < lane.priority {HEAD}) next
)
select count(*), {first} from (
    select lane.priority, job.* from lane cross join me cross join lateral (
        select run_at, id from {JOB} where {among} and queue = lane.queue and priority = lane.priority
            and run_at <= {NOW} and (run_at, id) < ({before})
            and xmax not in (select transactionid from locker)
        order by run_at, id limit %(most)s) job
    where lane.priority >= me.priority and lane.run_at <= {NOW}
    limit %(most)s) ahead
"""


# Run by explaining for a job without a key, and for one with a key: how many due ones come before it, those of
# the key alone, and the first of these, unless they are too many to tell. Raw: jumps from lane to lane, as the
# full claim. Indexes: pgjobs_job_claim, pgjobs_job_keyed.
AHEAD = _ahead(FREE, FREE, "null")
_FIRST = "(array_agg(id order by priority desc, run_at, id))[1]"
AHEAD_IN_KEY = _ahead(KEYED, _OF_KEY, f"case when count(*) < %(most)s then {_FIRST} end")

# Run by explaining for a job of a key whose jobs run in order. Index: pgjobs_job_order.
AHEAD_IN_ORDER = f"""
with {_ME}
select count(*), null from (
    select from {JOB} where {_OF_KEY} and (concurrency_key, id) < (select concurrency_key, id from me)
    order by concurrency_key, id limit %(most)s) ahead
"""
