"""What a job leaves behind on the connections of its thread ends with the job.

Invariant: a transaction that a handler left open is rolled back and reported, never taken over by the
next job, nor is a session that it changed (`SET`, advisory locks, temporary tables). Not for threads
whose transaction is somebody else's, such as a test's.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from typing import Any, Self

from django.db import connections
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

from django_pgjobs.exceptions import PgJobsError

# What outlives its transaction in a session. Rather too much than too little: it costs a connection.
_CHANGES_SESSION = re.compile(
    r"(?:^|;)(?:\s|--[^\n]*\n|/\*.*?\*/)*"
    r"(?:set(?!\s+(?:local|transaction|constraints)\b)|reset|listen|prepare|load)\b"
    r"|\bset_config\s*\((?![^()]*,\s*true\s*\))|\bpg_(?:try_)?advisory_lock(?:_shared)?\s*\("
    r"|\b(?:into|create(?:\s+or\s+replace)?)(?:\s+(?:local|global))?\s+temp(?:orary)?\b|\bpg_temp\b",
    re.IGNORECASE | re.DOTALL,
)
_OPEN = {TransactionStatus.ACTIVE, TransactionStatus.INTRANS, TransactionStatus.INERROR}


class TransactionLeftOpen(PgJobsError):
    """A handler returned inside a transaction."""

    @classmethod
    def on(cls, aliases: Iterable[str]) -> Self:
        """Name the databases."""
        return cls(
            f"The handler returned with a transaction open on {', '.join(map(repr, aliases))}: it "
            "was rolled back. Leave atomic() blocks before returning, and commit what you began."
        )


def guard_thread() -> None:
    """Watch over this thread's connections: call it once, before the first of them opens."""
    _THREAD.guarded = True


def check_before() -> None:
    """Close what is broken or too old, and distrust the rest."""
    for connection in _connections():
        connection.close_if_unusable_or_obsolete()
    distrust()


def distrust() -> None:
    """Have the next query on each connection find out whether the server is gone."""
    for connection in _connections():
        connection.health_check_done = False
        connection.health_check_enabled = True


def remove() -> list[str]:
    """Treat the connections as Django does at the end of a request; return what was left open."""
    left = roll_back()
    for connection in _connections():
        if connection.alias in _THREAD.changed or _is_doubtful(connection):
            _hang_up(connection)
        connection.close_if_unusable_or_obsolete()
    return left


def _is_doubtful(connection: Any) -> bool:
    """Whether something was refused here: it may lead to a server that was the primary once.

    Such a server answers, so that neither Django nor a pool would ever let go of it.
    """
    return bool(connection.errors_occurred) and connection.vendor == "postgresql"


def roll_back(*, but: str | None = None) -> list[str]:
    """Roll back open transactions, all `but` one, and return their aliases.

    Other connections stay as they are.
    """
    others = [connection for connection in _connections() if connection.alias != but]
    return [connection.alias for connection in others if _roll_back(connection)]


def _roll_back(connection: Any) -> bool:
    connection.queries_log.clear()  # with DEBUG on it would grow for ever
    session = connection.connection
    if session is None and not connection.in_atomic_block:
        return False
    postgres = session is not None and connection.vendor == "postgresql"
    unfinished = postgres and session.info.transaction_status in _OPEN
    if connection.in_atomic_block or (unfinished and connection.settings_dict["AUTOCOMMIT"]):
        # Django's wrapper cannot leave an atomic block that nobody will exit: replace it.
        if session is not None:
            session.close()
            connection._close()  # noqa: SLF001 -- close() inside atomic() keeps the wrapper's state
        del connections[connection.alias]
        return True
    if (postgres and session.closed) or connection.autocommit != connection.settings_dict[
        "AUTOCOMMIT"
    ]:
        connection.close()
    return False


def _hang_up(connection: Any) -> None:
    """End the session on the server too, where close() would only give it back to a pool."""
    _THREAD.changed.discard(connection.alias)
    if connection.connection is not None:
        connection.connection.close()
    connection.close()


def _connections() -> list[Any]:  # Any: django-stubs knows half of the wrapper's attributes
    # Asking Django costs more than all else about a short job, and most threads never connect.
    return list(connections.all(initialized_only=True)) if _THREAD.connected else []


class _Thread(threading.local):
    connected = False
    guarded = False

    def __init__(self) -> None:
        self.changed: set[str] = set()  # aliases whose session is not as it was opened


_THREAD = _Thread()


def _note_connection(connection: Any, **_kwargs: object) -> None:
    _THREAD.connected = True
    _THREAD.changed.discard(connection.alias)
    if _THREAD.guarded and _note_change not in connection.execute_wrappers:
        connection.execute_wrappers.append(_note_change)


def _note_change(execute: Callable[..., Any], sql: object, *others: Any) -> Any:
    if not isinstance(sql, str) or _CHANGES_SESSION.search(sql):
        *_, context = others
        _THREAD.changed.add(context["connection"].alias)
    return execute(sql, *others)


connection_created.connect(_note_connection, dispatch_uid="django_pgjobs.leftovers")
