"""The raw SQL of settle and release, every statement under its purpose, and what all claims say.

What the ORM can say is said with the ORM. A statement stands here, in `free_lanes`, `inserts`, `gates`,
`upkeep`, `inspection` or `obstacles` where one round trip has to do what the ORM needs several for, or
needs a form that it cannot write; each says who runs it, why it is raw and which index serves it.

Invariant: source and target of every change of status come from `lifecycle.MOVES`; a write about a
running job carries its claim's token (id, locked_by, claims); `status` is always a literal, so that
the partial indexes match under generic plans too; the clock is the database's.
"""

from __future__ import annotations

from django_pgjobs.lifecycle import MOVES, NOW

JOB = "django_pgjobs_job"
WORKER = "django_pgjobs_worker"
QUEUE = "django_pgjobs_queue"
FIGURE = "django_pgjobs_figure"

NEAR = 200  # jobs of a lane among which a claim looks for certain kinds
MOST_ERRORS = 25  # entries kept in `errors`, the latest ones
MOST_ERROR_BYTES = 1_000_000  # of them, as stored; 25 of ours are half of that at most

# ---------------------------------------------------------------------------------------- wake-ups

# Run by notify after a commit, and by the listener's test. All notifications of a server share one
# lock. This transaction writes nothing, so it waits for no disk and no replica while it holds that
# lock; and it waits for the lock no longer than a second, whatever others do with theirs. Raw: there
# is no table.
NOTIFY = """
select set_config('lock_timeout', '1s', true), pg_notify(%(channel)s, %(payload)s)
"""

# ------------------------------------------------------------------------------------------ claim

# Jobs with a concurrency key are pending too, but not for these claims: see `gates`.
FREE = "status = 'pending' and concurrency_key is null"
KEYED = "status = 'pending' and concurrency_key is not null"

# A lane is a (queue, priority) with a pending job. Its head, the first one, costs one probe of the
# claim index, so lanes whose jobs are all in the future cost nothing more.
HEAD = "order by priority desc, run_at, id limit 1"

UNPAUSED = (
    f"not exists (select from {QUEUE} q where q.name = queues.name and q.paused_at is not null)"
)
NOT_PAUSED = f"""
    not name = any(%(exclude)s::text[]) and {UNPAUSED}
"""

# The queues that a worker serves: those that it was told, or all that have a pending job, found by
# jumping from one to the next in the claim index (a select distinct would read all of it).
NAMED_QUEUES = f"""
served(name) as (
    select name from unnest(%(queues)s::text[]) queues(name) where {NOT_PAUSED}
)"""


def queue_names(table: str, waiting: str) -> str:
    """Return the part that jumps from one queue with such jobs to the next, and ends with a null."""
    return f"""{table}(name) as (
    (select queue from {JOB} where {waiting} order by queue limit 1)
  union all
    select (select queue from {JOB} where {waiting} and queue > {table}.name order by queue limit 1)
    from {table} where {table}.name is not null
)"""


def _all_queues(waiting: str) -> str:
    return f"""
{queue_names("queues", waiting)},
served(name) as (select name from queues where name is not null and {NOT_PAUSED})"""


ALL_QUEUES, ALL_KEYED_QUEUES = _all_queues(FREE), _all_queues(KEYED)


def of_kinds(kind: str) -> str:
    """Say whether this kind is one of those that are looked for: of `kinds`, or of all but those."""
    return f"({kind} = any(%(kinds)s::text[])) = %(among)s"


WAITED = f"extract(epoch from {NOW} - run_at)::float8"

# A worker that was asleep for longer than its lease may not know yet that its death is recorded.
LIVING = f"not exists (select from {WORKER} where id = %(worker)s and died_at is not null)"


# ----------------------------------------------------------------------------------------- settle

# The fence: only the row's own claim may write. As a plain join condition it makes the planner
# expect one row and choose a plan that is six times slower; CASE hides it from the estimate. It
# names no `status`, which would bring the index of running jobs in with stale statistics: a CHECK
# says that a locked row is a running one.
_FENCE = "case when j.locked_by = %(worker)s then j.claims = {claims} else false end"

# A row that somebody else has locked is left for the next round: waiting for it would hold up all the
# others of this worker, its claims and its stop.
_FREE = f"""j.id = any(array(
    select id from {JOB} where id = any(%(ids)s::bigint[]) and locked_by = %(worker)s
    for update skip locked))"""

# The result of a task names its workers, while a settled row has let go of the last one.
_NOTE_WORKER = """meta = case when j.meta ? 'task'
    then j.meta || jsonb_build_object('worker', %(worker)s::bigint) else j.meta end"""

# Run by outcomes.settle(), and inside the claim, for handlers that returned None, grouped by `claims`.
# Raw: the fence. Index: the primary key, as for all that follow.
COMPLETE = f"""
update {JOB} j set {MOVES["complete"].assignments}, {_NOTE_WORKER}
where {_FREE} and {_FENCE.format(claims="%(claims)s")}
returning j.id, j.claims
"""

_SETTLED = f"j.id = s.id and {_FENCE.format(claims='s.claims')}"

# Run by outcomes.settle() for handlers that returned something.
COMPLETE_WITH_RESULT = f"""
update {JOB} j set {MOVES["complete"].assignments}, result = s.result, {_NOTE_WORKER}
from jsonb_to_recordset(%(rows)s::jsonb) s(id bigint, claims int, result jsonb)
where {_SETTLED} and {_FREE}
returning j.id, j.claims
"""

# The latest errors. What SQL has put there may be too large to be stored once more.
KEPT_ERRORS = f"""case
    when pg_column_size(j.errors) > {MOST_ERROR_BYTES} then '[]'
    when jsonb_array_length(j.errors) >= {MOST_ERRORS} then j.errors - 0
    else j.errors end"""
LAST_TIMES = f"jsonb_build_object('started_at', j.attempted_at, 'at', {NOW})"
_NOTE_ERROR = f"""last_error = s.last_error, errors = {KEPT_ERRORS} || jsonb_build_array(s.error || {LAST_TIMES})"""
_FAILURES = """jsonb_to_recordset(%(rows)s::jsonb)
    s(id bigint, claims int, delay float8, last_error text, error jsonb)"""

_UNLESS_CANCELLED = "j.cancel_requested_at is null"  # left, for CANCEL
_GIVEN_BACK = MOVES["snooze"].columns["attempts"]

# Run by outcomes.settle() for failed attempts that have a further one.
RETRY = f"""
update {JOB} j set {MOVES["retry"].assignments},
    run_at = {NOW} + make_interval(secs => s.delay), {_NOTE_ERROR}
from {_FAILURES}
where {_SETTLED} and {_FREE} and {_UNLESS_CANCELLED}
returning j.id, j.claims
"""

# Run by outcomes.settle() for failed attempts that were the last.
FAIL = f"""
update {JOB} j set {MOVES["fail"].assignments}, {_NOTE_ERROR}
from {_FAILURES}
where {_SETTLED} and {_FREE} and {_UNLESS_CANCELLED}
returning j.id, j.claims
"""

# Run by outcomes.settle() after RETRY and FAIL, for what they left.
CANCEL = f"""
update {JOB} j set {MOVES["cancel"].assignments}, {_NOTE_ERROR}
from {_FAILURES}
where {_SETTLED} and {_FREE} and not {_UNLESS_CANCELLED}
returning j.id, j.claims
"""

# Run by outcomes.settle() for handlers that asked to be run later: no attempt and no error, also where
# the job is cancelled instead.
SNOOZE = f"""
with asked as materialized (
    select s.* from jsonb_to_recordset(%(rows)s::jsonb) s(id bigint, claims int, delay float8)
),
snoozed as (
    update {JOB} j set {MOVES["snooze"].assignments}, run_at = {NOW} + make_interval(secs => s.delay)
    from asked s where {_SETTLED} and {_FREE} and {_UNLESS_CANCELLED} returning j.id, j.claims
),
cancelled as (
    update {JOB} j set {MOVES["cancel"].assignments}, attempts = {_GIVEN_BACK}
    from asked s where {_SETTLED} and {_FREE} and not {_UNLESS_CANCELLED} returning j.id, j.claims
)
select * from snoozed union all select * from cancelled
"""

# Run by outcomes.settle() for handlers that stopped because the job is cancelled, asked or of themselves: then
# they have requested it.
STOP = f"""
update {JOB} j set {MOVES["cancel"].assignments}, {_NOTE_ERROR},
    cancel_requested_at = coalesce(cancel_requested_at, {NOW})
from {_FAILURES}
where {_SETTLED} and {_FREE}
returning j.id, j.claims
"""

# Run by relay.exchange(), for handlers at work. A locked row is left for the next time. It answers with
# false what is written, with true what is to stop. Raw: the fence, and both ways in one round trip.
EXCHANGE = f"""
with said as materialized (
    select * from jsonb_to_recordset(%(rows)s::jsonb) s(id bigint, claims int, progress jsonb)
),
free as materialized (
    select id from {JOB} where id = any(array(select id from said)) and locked_by = %(worker)s
    for update skip locked
),
written as (
    update {JOB} j set meta = j.meta || jsonb_build_object(
        'progress', s.progress || jsonb_build_object('at', {NOW}))
    from said s where {_SETTLED} and j.id = any(array(select id from free))
    returning j.id, j.claims
)
select id, claims, false from written
union all select id, claims, true from {JOB}
where id = any(%(listening)s::bigint[]) and locked_by = %(worker)s and cancel_requested_at is not null
"""

_THESE = (
    f"""{JOB} j join unnest(%(ids)s::bigint[], %(claims)s::int[]) s(id, claims) on {_SETTLED}"""
)


def _give_back(rows: str) -> str:
    """Release these rows, or cancel those whose cancelling was requested meanwhile."""
    return f"""
given as materialized (select j.id from {rows} for update of j skip locked),
released as (
    update {JOB} j set {MOVES["release"].assignments} from given
    where j.id = given.id and {_UNLESS_CANCELLED} returning j.id
),
cancelled as (
    update {JOB} j set {MOVES["cancel"].assignments}, attempts = {_GIVEN_BACK} from given
    where j.id = given.id and not {_UNLESS_CANCELLED} returning j.id
),
done as (select id from released union all select id from cancelled)"""


# Run by claims.release() for claims that never started. A locked row is skipped, not waited for,
# and reported with false.
RELEASE = f"""
with mine as (select j.id from {_THESE}), {_give_back(_THESE)}
select mine.id, done.id is not null from mine left join done using (id)
"""

# Run by charges, for claims that were rolled back with the transaction that the job ran in: exactly
# that claim, by the number that the next one would have. It also names what has its token already, which
# an earlier try gave it whose answer was lost. Raw: the fence, and a lock that does not wait.
_NEXT_CLAIM = MOVES["claim"].columns["claims"].replace("claims", "j.claims")
_ROLLED_BACK = f"""{JOB} j join unnest(%(ids)s::bigint[], %(claims)s::int[]) s(id, claims)
    on j.id = s.id and j.status = 'pending' and {_NEXT_CLAIM} = s.claims"""
RETAKE = f"""
with lost as (select j.id from {_ROLLED_BACK}),
free as materialized (select j.id from {_ROLLED_BACK} for update of j skip locked),
taken as (
    update {JOB} j set {MOVES["claim"].assignments}, locked_by = %(worker)s
    from free where j.id = free.id returning j.id
)
select lost.id, taken.id is not null from lost left join taken using (id)
union all select j.id, true from {_THESE}
"""

# Run by outcomes, for what a settle did not write: was the row locked, is it another claim's, or had an
# earlier settle written the same, whose answer was lost? Raw: the hot path's columns.
STANDING = f"""
select id, claims, attempts, locked_by = %(worker)s, status = 'done', errors -> -1 from {JOB}
where id = any(%(ids)s::bigint[])
"""

# Run by atomic where another transaction has locked the row of the job that it settles. Raw: the fence.
WAIT = f"select id from {JOB} where id = %(id)s and locked_by = %(worker)s for update"

# Run by children, for the jobs of a dead process that did not stop at their timeouts. Raw: the hot
# path's columns.
HELD = f"""
select id, kind, payload, attempts, attempts_before, max_attempts, claims from {JOB}
where id = any(%(ids)s::bigint[]) and locked_by = %(worker)s
"""

# Run by claims.release_orphans(). A claim can commit while its answer is lost: the row carries the
# worker's id and the worker does not know it. Index: pgjobs_job_running.
_ORPHANS = f"""{JOB} j
    where j.status = 'running' and j.locked_by = %(worker)s and not exists (
        select from unnest(%(ids)s::bigint[], %(claims)s::int[]) held(id, claims)
        where held.id = j.id and held.claims = j.claims)"""
RELEASE_ORPHANS = f"with {_give_back(_ORPHANS)} select id from done"
