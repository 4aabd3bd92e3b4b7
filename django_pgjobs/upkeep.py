"""The raw SQL of upkeep: workers and their deaths, reap, prune, figures.

Invariant: as in `statements`. None of it needs handlers. `functions` makes SQL functions of deaths, reap and
prune: after a change there, a migration has to create them anew.
"""

from __future__ import annotations

from django_pgjobs.lifecycle import MOVES, NOW
from django_pgjobs.statements import FIGURE, JOB, KEPT_ERRORS, LAST_TIMES, WORKER

SCHEDULE = "django_pgjobs_schedule"

WORKERS_KEPT = 7 * 86_400.0  # seconds that the row of a dead worker stays to be looked at
FIGURES_KEPT = 3 * 86_400.0  # seconds that the sums of a minute stay

# ---------------------------------------------------------------------------------------- workers

# Run by leases, on a connection of their own. Raw like their neighbours, rows by primary key.
REGISTER = f"""
insert into {WORKER} (host, pid, threads, queues, exclude, by_transaction, kinds, limited)
values (%(host)s, %(pid)s, %(threads)s, %(queues)s::jsonb, %(exclude)s::jsonb,
    %(by_transaction)s::jsonb, %(kinds)s::jsonb, %(limited)s::jsonb)
returning id
"""
HEARTBEAT = f"""
update {WORKER} set heartbeat_at = {NOW}, stopping_at = case when %(stopping)s
then coalesce(stopping_at, {NOW}) end
where id = any(%(workers)s::bigint[]) and died_at is null
returning id, exists(select from {SCHEDULE} where enabled and removed_at is null)
"""
END_LEASE = f"""
update {WORKER} set died_at = {NOW}, death = %(death)s, started = %(started)s::jsonb
where id = %(worker)s and died_at is null
"""

# ------------------------------------------------------------------------------------------- reap

_EXPIRED = f"< {NOW} - make_interval(secs => %(lease)s)"

# Run by reaper.run(), as a transaction of its own: death is recorded first, under the lock of the
# worker's row and with the heartbeat checked again, and only then are its jobs taken. In one
# statement a heartbeat that commits meanwhile goes unseen. Index: pgjobs_worker_living.
RECORD_DEATHS = f"""
update {WORKER} set died_at = {NOW}, death = %(death)s
where id = any(array(
    select id from {WORKER}
    where died_at is null and heartbeat_at {_EXPIRED}
    for update skip locked))
returning id, host, pid
"""

# A running row is lost if its worker's death is recorded, or if it has no worker row and is older
# than a lease (a row that somebody made or aged by hand). A living worker's never is.


def _lost(dead: str) -> str:
    return f"""from {JOB} j left join {WORKER} w on w.id = j.locked_by
    where j.status = 'running' and ({dead} or (w.id is null and j.locked_at {_EXPIRED}))"""


_NOTE_LOSS = f"""last_error = lost.message, errors = {KEPT_ERRORS} || jsonb_build_array(jsonb_build_object('attempt', j.attempts, 'error', 'WorkerLost',
        'message', lost.message, 'traceback', '', 'worker', lost.worker) || {LAST_TIMES})"""

# Run by reaper.run(). Raw: three moves and the lock in one statement. The
# back-off is retries.Exponential()'s, since a reaper has no handler code. Index: pgjobs_job_running.
REAP = f"""
with lost as materialized (
    select j.id, coalesce(w.host || ':' || w.pid || ' #' || w.id, '#' || j.locked_by) as worker,
        'The worker was lost: ' || coalesce(nullif(w.death, ''), 'it is not registered')
        || '.' as message,
        w.started is null or w.started @> to_jsonb(j.id) as started
    {_lost("w.died_at is not null")}
    limit %(limit)s for update of j skip locked
),
released as (
    update {JOB} j set {MOVES["release"].assignments}
    from lost where j.id = lost.id and not lost.started and j.cancel_requested_at is null
    returning j.id, j.queue, j.kind, j.status, j.attempts, lost.started
),
retried as (
    update {JOB} j set {MOVES["reap"].assignments}, {_NOTE_LOSS}, run_at = {NOW} + make_interval(
        secs => least(power(2, least(17, greatest(1, j.attempts - j.attempts_before))), 86400 / 1.1)
                * (0.9 + random() * 0.2))
    from lost where j.id = lost.id and lost.started
        and j.attempts < j.max_attempts and j.cancel_requested_at is null
    returning j.id, j.queue, j.kind, j.status, j.attempts, lost.started
),
failed as (
    update {JOB} j set {MOVES["reap_to_failed"].assignments}, {_NOTE_LOSS}
    from lost where j.id = lost.id and lost.started
        and j.attempts >= j.max_attempts and j.cancel_requested_at is null
    returning j.id, j.queue, j.kind, j.status, j.attempts, lost.started
),
cancelled as (
    update {JOB} j set {MOVES["cancel"].assignments}, {_NOTE_LOSS}
    from lost where j.id = lost.id and j.cancel_requested_at is not null
    returning j.id, j.queue, j.kind, j.status, j.attempts, lost.started
)
select * from released union all select * from retried
union all select * from failed union all select * from cancelled
"""

# Run by reaper.preview(): what run() would do.
COUNT_LOST = f"select count(*) {_lost(f'(w.died_at is not null or w.heartbeat_at {_EXPIRED})')}"
COUNT_DEAD = f"""
select count(*) from {WORKER}
where died_at is null and heartbeat_at {_EXPIRED}
"""

# ------------------------------------------------------------------------------------------ prune


def _old(status: str) -> str:
    return f"""from {JOB} where status = '{status}' and finished_at is not null
        and finished_at < {NOW} - make_interval(secs => %(keep)s)"""


# Run by reaper.run() batch by batch, each its own transaction, so that it can stop anywhere. Raw:
# ordered, limited and locked in one statement. Index: pgjobs_job_finished.
PRUNE = {
    status: f"""
delete from {JOB} where id = any(array(
    select id {_old(status)} order by finished_at limit %(limit)s for update skip locked))
returning id
"""
    for status in ("done", "failed", "cancelled")
}
COUNT_OLD = {status: f"select count(*) {_old(status)}" for status in PRUNE}

# Run by reaper.run(): workers that died long ago and hold nothing.
PRUNE_WORKERS = f"""
delete from {WORKER} where id = any(array(
    select w.id from {WORKER} w where died_at < {NOW} - make_interval(secs => %(keep)s)
    and not exists (select from {JOB} j where j.status = 'running' and j.locked_by = w.id)
    for update of w skip locked))
"""

# ---------------------------------------------------------------------------------------- figures

# Run by figures.Figures, for workers and for reaper.run(). Raw: an upsert that adds. In order, so that
# two cannot wait for each other. Index: the primary key.
ADD_FIGURES = f"""
insert into {FIGURE} as f (minute, queue, kind, done, failed, wait, run)
select date_trunc('minute', {NOW}), * from unnest(%(queues)s::text[], %(kinds)s::text[],
    %(done)s::bigint[], %(failed)s::bigint[], %(waits)s::float8[], %(runs)s::float8[]) added(queue, kind)
order by queue, kind
on conflict (minute, queue, kind) do update set done = f.done + excluded.done,
    failed = f.failed + excluded.failed, wait = f.wait + excluded.wait, run = f.run + excluded.run
"""

# Run by reaper. Raw: the database's clock, in a statement like the others. Index: the primary key.
PRUNE_FIGURES = f"""
delete from {FIGURE} where minute < {NOW} - make_interval(secs => %(keep)s)
"""
