"""The raw SQL that claims jobs without limits, lane by lane, and settles in the same round trip.

Invariant: what somebody else has locked is passed over, and a worker whose death is recorded gets
nothing.
"""

from __future__ import annotations

from django_pgjobs.lifecycle import MOVES, NOW
from django_pgjobs.statements import (
    COMPLETE,
    FREE,
    HEAD,
    JOB,
    LIVING,
    NEAR,
    QUEUE,
    WAITED,
    of_kinds,
)


def lanes_of(served: str, found: str = "found") -> str:
    """Return the part that finds the lanes of `served`, a table of the names of queues."""
    return f"""{found}(queue, priority, run_at, id) as (
    select first.* from {served} cross join lateral (
        select queue, priority, run_at, id from {JOB}
        where {FREE} and queue = served.name {HEAD}) first
  union all
    select next.* from {found} cross join lateral (
        select queue, priority, run_at, id from {JOB}
        where {FREE} and queue = {found}.queue and priority < {found}.priority {HEAD}) next
)"""


_LANES = f"""{lanes_of("served")},
lane as materialized (select * from found where run_at <= {NOW} and {LIVING})"""

_LIMITED_DUE = f"(select 1000000 * extract(epoch from min(run_at) - {NOW}) from limited)"


def full_claim(queues: str, oldest: str, survey: str) -> str:
    """Return the claim that finds its lanes itself, from one of the two lists of queues.

    `survey` finds what has limits, for which other claims are made.
    """
    return f"""
with recursive {queues},
{_LANES},
{survey},
{_claim(oldest, limited_due=_LIMITED_DUE)}
union all select null, id, null, null, null, null, null, null, queue, null, priority, run_at::text
    from lane
"""


def hot_claim(oldest: str) -> str:
    """Return the claim that is given its lanes, each with the place from which to look.

    Jobs before that place were claimed by this worker, or appeared behind it: they wait for the next
    full claim. A pause waits for none. While an old snapshot keeps dead rows alive, a claim from the head would walk over
    all that was ever finished in the lane; from the mark it does not.
    """
    return f"""
with lane as materialized (
    select * from unnest(%(lane_queues)s::text[], %(lane_priorities)s::smallint[],
        %(lane_times)s::timestamptz[], %(lane_ids)s::bigint[]) lane(queue, priority, run_at, id)
    where {LIVING} and not queue = any(array(select name from {QUEUE} where paused_at is not null))
),
{_claim(oldest)}"""


def claim_of_kinds(queues: str, survey: str) -> str:
    """Return the claim that looks for some kinds only, or for all but those.

    Run by claims.Claimer while the threads of a worker are busy and its event loop is not, or the
    reverse. Raw: as the full claim, whose lanes it finds. It looks at the first rows of each lane, and
    at so many in all, without locking them: what is not wanted must be free for others.
    Its first row says in how many microseconds what has limits is due, as that of a full claim.
    Indexes: pgjobs_job_claim, and the primary key.
    """
    return f"""
with recursive {queues},
{_LANES},
near as materialized (
    select id from (
        select job.* from (select * from lane order by priority desc, run_at, id) lane
        cross join lateral (
            select id, kind from {JOB}
            where {FREE} and queue = lane.queue and priority = lane.priority and run_at <= {NOW}
            order by run_at, id limit {NEAR}) job
        limit {10 * NEAR}) job
    where {of_kinds("kind")} limit %(limit)s
),
{survey},
due as materialized (
    select id from {JOB} where id = any(array(select id from near)) and status = 'pending'
    for update skip locked
),
claimed as (
    update {JOB} set {MOVES["claim"].assignments}, locked_by = %(worker)s
    where id = any(array(select id from due))
    returning id, kind, payload, attempts, attempts_before, max_attempts, claims, queue, priority, run_at
)
select {_LIMITED_DUE}::bigint, null, null, null, null, null, null, null, null
union all
(select id, kind, payload, attempts, attempts_before, max_attempts, claims, queue, {WAITED}
from claimed order by priority desc, run_at, id)
"""


def _claim(oldest: str, limited_due: str = "null") -> str:
    """Return the part that both claims share: settle, then claim from `lane` in order.

    Run by claims.Claimer. Raw: one round trip and one commit for both, and a LATERAL join. `oldest`
    is the ORM's select_for_update(skip_locked=True) over one lane. `due` is materialized: a nested
    loop that ran it twice would lock a second batch. Its LIMIT has no ORDER BY of its own, so rows
    are locked one by one until there are enough. The answer reads `settled` first: a part that nobody
    reads runs last, and could then wait for a lock while it holds those of the claim.
    Its first row says what was settled, and in a full claim in how many microseconds
    what has limits is due.
    Indexes: pgjobs_job_claim, and the primary key.
    """
    return f"""due as materialized (
    select job.id
    from (select * from lane order by priority desc, run_at, id) lane
    cross join lateral ({oldest} limit (select %(limit)s::int)) job
    limit %(limit)s::int
),
settled as (
    {COMPLETE}
),
claimed as (
    update {JOB} set {MOVES["claim"].assignments}, locked_by = %(worker)s
    where id = any(array(select id from due))
    returning id, kind, payload, attempts, attempts_before, max_attempts, claims,
        queue, priority, run_at
)
select (select array_agg(id) from settled), {limited_due}::bigint, null::text, null::jsonb, null::int, null::int,
    null::int, null::int, null::text, null::float8, null::smallint, null::text
union all
(select null, id, kind, payload, attempts, attempts_before, max_attempts, claims,
    queue, {WAITED}, priority, run_at::text from claimed
    order by claimed.priority desc, claimed.run_at, claimed.id)
"""
