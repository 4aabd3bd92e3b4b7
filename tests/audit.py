"""An audit trigger on the job table: what really happened to each row, whoever wrote it.

The trigger writes in the transaction of the change, so what is rolled back leaves no trace.
"""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from django.db import connection

from django_pgjobs.lifecycle import FINAL, MOVES
from django_pgjobs.models import Job

INSTALL = """
create table audit (
    position bigserial, job bigint, old text, new text, claims int, attempts int, given_back boolean,
    asked boolean, holder bigint, run_at timestamptz, backend int default pg_backend_pid(), at timestamptz default clock_timestamp(),
    key text, unique_key text, began timestamptz default statement_timestamp()
);
create function audit() returns trigger language plpgsql as $$
begin
    if new.finished_at is not null and to_jsonb(old) - 'unique_key' = to_jsonb(new) - 'unique_key' then
        return null;  -- its key was let go for another job, by a statement that names more columns
    end if;
    insert into audit (job, old, new, claims, attempts, given_back, asked, holder, run_at, key, unique_key) values (
        coalesce(new.id, old.id), old.status, new.status, coalesce(new.claims, old.claims),
        coalesce(new.attempts, old.attempts), new.attempts < old.attempts,
        new.cancel_requested_at is not null, coalesce(new.locked_by, old.locked_by), new.run_at,
        new.payload ->> 'key', new.unique_key);
    return null;
end $$;
create trigger audit after insert or delete or update of status, claims, attempts, payload on django_pgjobs_job
    for each row execute function audit();
"""
REMOVE = "drop table if exists audit; drop function if exists audit() cascade;"

_ARROWS = {
    (source.value, move.target.value) for move in MOVES.values() for source in move.sources
} - {("running", "cancelled")}


class Change(NamedTuple):
    """One change of a row; `old` is None for its insert, `new` for its delete."""

    job: int
    old: str | None
    new: str | None
    claims: int
    attempts: int
    given_back: bool | None
    asked: bool | None
    holder: int | None  # the worker that has the job, or had it until now
    run_at: datetime.datetime | None
    backend: int
    at: datetime.datetime
    key: str | None  # of the payload
    unique_key: str | None
    began: datetime.datetime  # the statement, at the latest


@contextmanager
def installed() -> Iterator[None]:
    """Have the trigger for a while."""
    with connection.cursor() as cursor:
        cursor.execute(REMOVE + INSTALL)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(REMOVE)


def changes() -> list[Change]:
    """Return the changes in order. Each job's are its true history: its row lock orders them."""
    columns = ", ".join(Change._fields)
    with connection.cursor() as cursor:
        cursor.execute(f"select {columns} from audit order by position")  # noqa: S608
        return [Change(*row) for row in cursor.fetchall()]


def clear() -> None:
    with connection.cursor() as cursor:
        cursor.execute("delete from audit")


def most_at_a_time() -> dict[str, int]:
    """Return how many of each concurrency key were ever running at a time, as far as was noted.

    The end of one is noted before it is committed, thus before another one can be claimed for it.
    """
    keys = dict(Job.objects.values_list("id", "concurrency_key"))
    now: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for change in sorted(changes(), key=lambda change: change.at):
        key = keys.get(change.job)
        if key is not None:
            now[key] += (change.new == "running") - (change.old == "running")
            most[key] = max(most[key], now[key])
    return dict(most)


def assert_lawful() -> Counter[tuple[str | None, str | None]]:
    """Check every change against the lifecycle; return how often each was made."""
    histories = defaultdict(list)
    for change in changes():
        histories[change.job].append(change)
    for history in histories.values():
        assert_lawful_life(history)
    return Counter((c.old, c.new) for history in histories.values() for c in history)


def assert_lawful_life(history: list[Change]) -> None:
    """Check the life of one job: unbroken, by the moves of the lifecycle, with honest counts."""
    attempts = claims = None
    status = history[0].old
    for change in history:
        assert change.old == status, history
        status = change.new
        if change.old is None or change.new is None:
            assert change.new is not None or change.old in FINAL, history
        elif (change.old, change.new) == ("running", "running"):
            assert change.asked, history  # the one change of a running job that keeps its status
        elif (change.old, change.new) == ("running", "cancelled"):
            assert change.asked, history
        else:
            assert (change.old, change.new) in _ARROWS, history
        if attempts is not None and claims is not None:
            claimed = (change.old, change.new) == ("pending", "running")
            given_back = bool(change.given_back)
            assert not given_back or change.old == "running", history
            assert change.claims == claims + claimed, history
            assert change.attempts == attempts + claimed - given_back, history
        attempts, claims = change.attempts, change.claims
