"""A database session that a test moves on by hand, in a thread and with a Django connection of its own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Self, TypeVar

from django.db import DatabaseError, connection, transaction

from django_pgjobs.sessions import Execute, execute_on_django
from tests.waiting import eventually

T = TypeVar("T")
READ_COMMITTED, REPEATABLE_READ = "read committed", "repeatable read"


class HandSession:
    """Whatever runs here runs in one thread, whose connection commits only when told to."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self.pid = 0

    def begin(self, level: str = READ_COMMITTED) -> None:
        """Begin a transaction and take its first snapshot."""

        def step() -> int:
            transaction.set_autocommit(False)
            [(pid,)] = _execute(f"set transaction isolation level {level}; select pg_backend_pid()")
            return pid

        self.pid = self.do(step)

    def start(self, step: Callable[[Execute], T]) -> Future[T]:
        """Begin a step that may have to wait for another session."""
        return self._thread.submit(step, execute_on_django("default"))

    def run(self, step: Callable[[Execute], T]) -> T:
        """Make a step that does not wait."""
        return self.start(step).result(timeout=10)

    def do(self, step: Callable[[], T]) -> T:
        return self._thread.submit(step).result(timeout=10)

    def commit(self) -> None:
        self.do(transaction.commit)

    def rollback(self) -> None:
        self.do(transaction.rollback)

    def die(self) -> None:
        """End as a session ends whose process was killed: the server finds out by itself."""
        with connection.cursor() as cursor:
            cursor.execute("select pg_terminate_backend(%s)", [self.pid])
        eventually(lambda: not _exists(self.pid))
        self.end()

    def end(self) -> None:
        """Close the connection; the next transaction opens a new one."""
        self.do(lambda: connection.close())  # noqa: PLW0108 -- the connection of that thread

    def waits_for(self, other: HandSession, future: Future[Any]) -> bool:
        """Say whether the step behind `future` waits for `other`, or has ended."""
        wait([future], timeout=0.01)
        return (
            eventually(
                lambda: (future.done() and "ended") or (_waits(self.pid, other.pid) and "waits")
            )
            == "waits"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # After a failed assertion a step may still wait for the other session.
        _execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid = %s", (self.pid,)
        )
        self.end()
        self._thread.shutdown()


def is_serialization_failure(error: BaseException) -> bool:
    return isinstance(error, DatabaseError) and getattr(error.__cause__, "sqlstate", "") == "40001"


def _execute(sql: str, params: tuple[Any, ...] | None = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        while cursor.nextset():
            pass
        return cursor.fetchall()


def _exists(pid: int) -> bool:
    [(count,)] = _execute("select count(*) from pg_stat_activity where pid = %s", (pid,))
    return bool(count)


def _waits(waiting: int, blocking: int) -> bool:
    [(answer,)] = _execute("select %s = any(pg_blocking_pids(%s))", (blocking, waiting))
    return bool(answer)
