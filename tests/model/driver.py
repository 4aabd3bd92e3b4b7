"""The product as the state machine drives it: kinds that do as they are told, workers, and the rows."""

from __future__ import annotations

import datetime
import json
from typing import Any, NamedTuple

from django.db import connection
from django.db.models.functions import Now

from django_pgjobs import Limit, Rate, execution, job, lifecycle, reaper
from django_pgjobs.claims import Claim, Claimer
from django_pgjobs.claims import Served as Queues
from django_pgjobs.limited_claims import LimitedClaimer
from django_pgjobs.models import Job, Queue
from django_pgjobs.models import Worker as Row
from django_pgjobs.outcomes import Outcome, settle
from django_pgjobs.retries import Fixed
from django_pgjobs.sessions import DjangoExecutor
from django_pgjobs.upkeep import END_LEASE
from tests.db.rows import AGO, make_worker
from tests.model.reference import BURST, HALF, HOUR, KEPT, NARROW, NARROW_SLOTS, SECOND, Served

EXECUTOR = DjangoExecutor("default")
execute = EXECUTOR.execute
HALF_AN_HOUR = datetime.timedelta(milliseconds=HALF)
KINDS: dict[str, dict[str, Any]] = {
    "free": {},
    "pair": {"concurrency": Limit(2, key="k")},
    "line": {"concurrency": Limit(1, key="k"), "ordered": True},
    "slow": {"rate": Rate(1, per=HOUR / SECOND, burst=BURST, key="k")},
}
PGJOBS = {
    "QUEUES": {NARROW: {"concurrency": NARROW_SLOTS}},
    "LEASE": 86_400,  # who dies here dies by record, and not of a slow machine
    "NOTIFY": False,
    **dict.fromkeys(("KEEP_DONE", "KEEP_FAILED", "KEEP_CANCELLED"), KEPT / SECOND),
}
TABLES = [f"django_pgjobs_{name}" for name in ("job", "worker", "queue", "gate", "figure")]
TIMES = {
    "job": ("run_at", "created_at", "attempted_at", "locked_at", "finished_at"),
    "gate": ("next_at",),
}

_asked: list[Any] = []  # what the handler that runs next returns or raises


def declare_kinds() -> None:
    """Declare kinds whose handlers do what `run()` is told."""
    for kind, limits in KINDS.items():

        def handler(k: int | None, u: int, n: int) -> object:
            if isinstance(_asked[-1], Exception):
                raise _asked[-1]
            return _asked[-1]

        job(kind=kind, retry=Fixed([HALF_AN_HOUR], jitter=0), **limits)(handler)


def run(claim: Claim, answer: object) -> Outcome:
    """Run the handler of a claim, which returns or raises this."""
    _asked.append(answer)
    return execution.run(claim, "worker")


class Worker:
    """One start of a worker: a row, and what it claims with."""

    def __init__(self, served: Served) -> None:
        self.served = served
        queues = Queues(served.queues, served.exclude)
        self.id = make_worker().pk
        self.claimer = Claimer("default", self.id, *queues)
        self.looks = LimitedClaimer(self.id, queues)

    def __repr__(self) -> str:
        return f"worker {self.id}"

    def claim(self, limit: int, done: list[Claim], *, hot: bool) -> list[Claim]:
        """Claim jobs without limits, and complete `done` on the way."""
        self.claimer._next_full = float("inf") if hot else 0.0
        claimed, left = self.claimer.settle_and_claim(execute, done, limit)
        settle(execute, self.id, [run(claim, None) for claim in left])
        return claimed

    def look(self, limit: int) -> list[Claim]:
        """Claim jobs with limits, once."""
        return self.looks.claim(EXECUTOR, limit)

    def look_until_dry(self, limit: int) -> list[list[Claim]]:
        """Claim jobs with limits until a look has passed all keys and found nothing."""
        found = [self.look(limit)]
        while not self.looks.swept:
            assert len(found) < 1_000, "looks must come to an end"
            found.append(self.look(limit))
        return [claims for claims in found if claims]

    def die(self, started: list[int] | None) -> None:
        """Die as a supervisor records it, who knows what had started; None: nobody saw it."""
        if started is None:
            Row.objects.filter(pk=self.id).update(heartbeat_at=AGO)
        else:
            params = {"worker": self.id, "death": "signal 9", "started": f"{started}"}
            execute(END_LEASE, params)


def begin() -> None:
    """Empty the tables."""
    with connection.cursor() as cursor:
        cursor.execute("; ".join(f"delete from {table}" for table in TABLES))  # noqa: S608


def let_pass(hours: int) -> None:
    """Let time pass: tests move rows, not the clock."""
    for table, columns in TIMES.items():
        moves = ", ".join(f"{column} = {column} - %(time)s::interval" for column in columns)
        execute(f"update django_pgjobs_{table} set {moves}", {"time": f"{hours} hours"})  # noqa: S608


def reap(*, prune: bool) -> None:
    reaper.run(execute, prune=prune)


def wait_half_an_hour(ids: list[int]) -> None:
    """Give what was reaped, whose back-off is a matter of chance, a time that is known."""
    jobs = Job.objects.filter(pk__in=ids)
    longest = datetime.timedelta(seconds=2**17 * 1.1)
    assert jobs.filter(run_at__gt=Now(), run_at__lt=Now() + longest).count() == len(ids)
    jobs.update(run_at=Now() + HALF_AN_HOUR)


def pause(queue: str) -> None:
    Queue.objects.update_or_create(name=queue, defaults={"paused_at": Now()})


def resume(queue: str) -> None:
    Queue.objects.filter(name=queue).update(paused_at=None)


def by_hand(verb: str, ids: list[int]) -> int:
    """Move jobs with a verb, and return how many it says that it moved."""
    jobs = Job.objects.filter(pk__in=ids)
    if verb == "delete":
        return lifecycle.delete(jobs)
    if verb.startswith("reschedule"):
        [(now,)] = execute("select statement_timestamp()", {})
        return jobs.reschedule(now + HALF_AN_HOUR * (1 if verb.endswith("future") else -1))
    return getattr(jobs[0] if len(ids) == 1 and jobs else jobs, verb)()


class Stored(NamedTuple):
    """A row, as it is compared."""

    id: int
    kind: str
    number: int
    queue: str
    priority: int
    status: str
    attempts: int
    max_attempts: int
    attempts_before: int
    claims: int
    locked_by: int | None
    concurrency_key: str | None
    unique_key: str | None
    result: object
    errors: int
    due: bool
    asked: bool


_NAMES = ", ".join(Stored._fields[3:13])
ROWS = f"""
select id, kind, (payload ->> 'n')::int, {_NAMES}, result::text, jsonb_array_length(errors),
    run_at <= statement_timestamp(), cancel_requested_at is not null
from django_pgjobs_job order by run_at, id
"""  # noqa: S608


def stored() -> list[Stored]:
    """Return all rows in the order of their times."""
    rows = [Stored(*row) for row in execute(ROWS, {})]
    return [row._replace(result=json.loads(row.result or "null")) for row in rows]
