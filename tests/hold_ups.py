"""Hold a transaction of somebody else's up at a step of its own, on the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import connection

from tests.waiting import eventually

_KEY = 4_711
_TRIGGERS = {
    # The settle of a job, as its last statement before the COMMIT.
    "settle": "after update on django_pgjobs_job for each row when (new.status = 'done')",
    "snooze": "after update on django_pgjobs_job for each row "
    "when (new.status = 'pending' and new.attempts < old.attempts)",
    # The COMMIT of whoever has written a group.
    "commit": "after insert on auth_group deferrable initially deferred for each row",
}
_INSTALL = """
create function hold_up() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock({key});
    return null;
end $$;
create {constraint} trigger hold_up {trigger} execute function hold_up();
"""
_LOCK = "select 1 from (select pg_advisory_lock({key})) locked"
_UNLOCK = "select pg_advisory_unlock({key})::int"
_REMOVE = "drop function if exists hold_up() cascade"
_HELD = "select pid from pg_locks where locktype = 'advisory' and objid = {key} and not granted"


def _run(sql: str) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return [pid for (pid,) in cursor.fetchall()] if cursor.description else []


@contextmanager
def held_up_at(step: str) -> Iterator[Callable[[], int]]:
    """Hold up what comes to this step until the block ends; yield what waits for it to be there.

    That returns the process id of its server.
    """
    constraint = "constraint" if step == "commit" else ""
    _run(_INSTALL.format(key=_KEY, constraint=constraint, trigger=_TRIGGERS[step]))
    _run(_LOCK.format(key=_KEY))
    try:
        yield lambda: eventually(lambda: _run(_HELD.format(key=_KEY)))[0]
    finally:
        _run(_UNLOCK.format(key=_KEY))
        eventually(lambda: not _run(_HELD.format(key=_KEY)))
        _run(_REMOVE)
