"""A connection of the worker's own, beside those that Django gives to the handlers.

Invariant: it is made from the same settings as Django's (role included) but never taken from
Django's pool, whose slots belong to the handlers; statements run at READ COMMITTED in autocommit,
one transaction each, whatever the project's defaults are. They are prepared where nobody can stand
between, unless the project says otherwise. One thread uses it at a time; another may cut it where the
server does not answer, which no keepalive notices behind a proxy.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Protocol

import django.db
import psycopg
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import IsolationLevel, errors
from psycopg.pq import TransactionStatus

Params = Mapping[str, Any]
Rows = list[tuple[Any, ...]]
Execute = Callable[[str, Params], Rows]


class Executor(Protocol):
    """What executes one statement, or several in one transaction, of which the last one answers."""

    def execute(self, sql: str, params: Params) -> Rows:
        """Execute one statement and return its rows."""

    def execute_all(self, statements: Sequence[str], params: Params, patience: float) -> Rows:
        """Execute several in one transaction; return the rows of the last."""


# What a lost or refused connection raises; the same statement may be tried again after a while.
CONNECTION_ERRORS = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    django.db.OperationalError,  # Django wraps the errors of connecting
    django.db.InterfaceError,
)

# What the server says where its tables are those of an older release, or where there are none.
SCHEMA_ERRORS = (errors.UndefinedTable, errors.UndefinedColumn)

DATABASE_ERRORS = (psycopg.Error, django.db.Error)  # these, and all that a server may refuse

_TRIES = 5
_PREPARED_AFTER = 5  # executions, as by psycopg's own default, where the project says nothing
# Seconds that a plan is kept. A table can grow by a million rows before its statistics say so, and
# with them the server would drop plans by itself.
_PLANS_KEPT = 10.0
# The server guesses that jumps along an index find thousands of rows each, and would compile what takes it
# a millisecond for a tenth of a second or more.
UNCOMPILED = ("jit = off",)
# Or it guesses that a jump finds one row, and would read all rows of another index and sort them for the first.
IN_ORDER = (*UNCOMPILED, "enable_sort = off")
_CANCEL = 0.5  # seconds that the request to cancel a statement may take

# When a silent peer is given up, where the project does not say: after some 25 seconds.
_ALIVE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,  # milliseconds
}


def connect(alias: str) -> BaseDatabaseWrapper:
    """Open a connection to the database `alias`, in autocommit, for whoever calls to close."""
    wrapper = connections[alias].copy()
    wrapper.inc_thread_sharing()
    options = {**_ALIVE, **wrapper.settings_dict["OPTIONS"]}
    options.pop("pool", None)
    wrapper.settings_dict.update(OPTIONS=options, AUTOCOMMIT=True, CONN_MAX_AGE=None)
    wrapper.ensure_connection()
    return wrapper


class ValueTooLarge(psycopg.DataError):
    """A value that the server cannot store for its size."""


class Session:
    """A lazily opened psycopg connection to the database `alias`."""

    def __init__(self, alias: str, planning: Sequence[str] = UNCOMPILED) -> None:
        """Remember the alias, and settings of the planner; the connection opens with the first statement."""
        self.alias = alias
        self._planning = planning
        self._wrapper: BaseDatabaseWrapper | None = None
        self._direct = True  # whether nobody stands between
        self._begin: Callable[[], AbstractContextManager[Any]] = nullcontext
        self._since: float | None = None  # when the statement began that is not answered yet
        self._plan_anew = math.inf  # by the monotonic clock
        self._lock = (
            threading.Lock()
        )  # a socket must not be closed, and its number given on, in cut()

    def execute(self, sql: str, params: Params, patience: float | None = None) -> Rows:
        """Run one statement in a transaction of its own and return its rows.

        Deadlocks and serialization failures are tried again: the statement is atomic, so nothing
        of it has happened. `patience` is how many seconds to wait for a lock, by default for ever.

        Raises:
            psycopg.Error: as the server said. After one of `CONNECTION_ERRORS` the next call
                connects anew; whether this statement took effect is then unknown.

        """
        for remaining in reversed(range(_TRIES)):
            try:
                self._since = time.monotonic()
                return self._execute(sql, params, patience)
            except (errors.DeadlockDetected, errors.SerializationFailure):
                if not remaining:
                    raise
            except errors.LockNotAvailable:
                raise  # the connection is as good as before
            except errors.ProgramLimitExceeded as error:
                # psycopg counts it among the errors of operation, as it does a lost connection.
                raise ValueTooLarge(str(error)) from error
            except CONNECTION_ERRORS:
                self.close()
                raise
            finally:
                self._since = None
        raise AssertionError("unreachable")

    def execute_all(self, statements: Sequence[str], params: Params, patience: float) -> Rows:
        """Run several statements in one transaction and one message; return the rows of the last.

        Each sees what was committed before it began. `patience`, and what is raised: as in `execute()`.
        """
        return self.execute(";".join(statements), params, patience)

    def close(self) -> None:
        """Close the connection, if there is one. It opens again when it is needed."""
        with self._lock:
            wrapper, self._wrapper = self._wrapper, None
            if wrapper is not None:
                wrapper.close()

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._wrapper is not None

    def cut(self, seconds: float) -> None:
        """Break the connection if a statement has had no answer for so long. For other threads."""
        since = self._since
        if since is None or time.monotonic() - since < seconds:
            return
        with self._lock:
            if self._wrapper is not None:
                _shut(self._wrapper)

    def _execute(self, sql: str, params: Params, patience: float | None = None) -> Rows:
        connection = self._connect()
        if patience is not None or not self._direct:
            return _execute_as_one(connection, sql, params, patience, self._planning)
        with self._begin(), connection.cursor() as cursor:
            if time.monotonic() >= self._plan_anew:
                cursor.execute("discard plans")
                self._plan_anew = time.monotonic() + _PLANS_KEPT
            cursor.execute(sql, params)
            return cursor.fetchall() if cursor.description else []

    def _connect(self) -> psycopg.Connection[Any]:
        if self._wrapper is None:
            self._wrapper = connect(self.alias)
            self._adapt(self._wrapper)
        connection: psycopg.Connection[Any] = self._wrapper.connection
        return connection

    def _adapt(self, wrapper: BaseDatabaseWrapper) -> None:
        """Prepare statements, and begin transactions at another level than the default, where one must."""
        connection: psycopg.Connection[Any] = wrapper.connection
        asked = "select pg_backend_pid(), current_setting('default_transaction_isolation')"
        [(backend, level)] = connection.execute(asked).fetchall()
        # What stands between names another one.
        self._direct = backend == connection.info.backend_pid
        self._plan_anew, self._begin = math.inf, nullcontext
        if not self._direct:
            return  # to _execute_as_one(): what is set here could be set for others
        connection.execute("; ".join(f"set {each}" for each in self._planning))
        threshold = wrapper.settings_dict["OPTIONS"].get("prepare_threshold", _PREPARED_AFTER)
        if threshold is not None:
            connection.cursor_factory = psycopg.Cursor
            connection.prepare_threshold = threshold
            self._plan_anew = time.monotonic() + _PLANS_KEPT
        if level != "read committed":  # in autocommit no statement of its own is needed
            connection.isolation_level = IsolationLevel.READ_COMMITTED
            self._begin = connection.transaction


def _execute_as_one(
    connection: psycopg.Connection[Any],
    sql: str,
    params: Params,
    patience: float | None,
    planning: Sequence[str],
) -> Rows:
    """Run a statement and its settings as one message; with `patience` it waits so long for a lock.

    So it is one transaction too, for a pooler may share the session: nobody who stands still, or whose
    network does, can leave it open with rows locked.
    """
    settings = ["transaction_isolation = 'read committed'", *planning]
    if patience is not None:
        settings.append(f"lock_timeout = '{patience * 1000:.0f}ms'")
    with psycopg.ClientCursor(connection) as cursor:  # the only kind that sends several at once
        cursor.execute("; ".join([*(f"set local {each}" for each in settings), sql]), params)
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description else []


def break_off(wrapper: BaseDatabaseWrapper) -> None:
    """End what another thread's connection is at, and the connection, as far as can be done from here."""
    with suppress(psycopg.Error, AttributeError):
        if wrapper.connection.info.transaction_status == TransactionStatus.ACTIVE:
            wrapper.connection.cancel_safe(timeout=_CANCEL)
    _shut(wrapper)


def _shut(wrapper: BaseDatabaseWrapper) -> None:
    with (
        suppress(OSError, psycopg.Error, AttributeError),
        # Of a copy of the descriptor: shutdown() works on the connection, close() does not.
        socket.socket(fileno=os.dup(wrapper.connection.pgconn.socket)) as peer,
    ):
        peer.shutdown(socket.SHUT_RDWR)


def reason(error: Exception) -> str:
    """Return what the server or the connection said, in one line and without the statement."""
    diagnosis = getattr(error, "diag", None)
    said = diagnosis.message_primary if diagnosis else None
    return said or " ".join(str(error).split())


def refused(error: Exception) -> bool:
    """Whether the server said no, and the connection is as good as before."""
    # psycopg counts what took too long among the errors of a lost connection.
    too_long = isinstance(error, errors.LockNotAvailable | errors.QueryCanceled)
    return too_long or not isinstance(error, CONNECTION_ERRORS)


def in_transaction(alias: str) -> bool:
    """Say whether Django's connection is inside `atomic()`, as in a TestCase."""
    return connections[alias].in_atomic_block


def execute_on_django(alias: str) -> Execute:
    """Return an `execute` that runs on Django's own connection, in its transaction if it has one."""

    def execute(sql: str, params: Params) -> Rows:
        with connections[alias].cursor() as cursor:
            cursor.execute(sql, params)
            return cursor.fetchall() if cursor.description else []

    return execute


class DjangoExecutor:
    """An `Executor` on Django's own connection, in its transaction if it has one: for tests."""

    def __init__(self, alias: str) -> None:
        """Remember the alias."""
        self._alias = alias
        self.execute = execute_on_django(alias)

    def execute_all(self, statements: Sequence[str], params: Params, patience: float) -> Rows:  # noqa: ARG002 -- nobody else is there
        """Execute several in one transaction; return the rows of the last."""
        with transaction.atomic(using=self._alias):
            return [self.execute(statement, params) for statement in statements][-1]
