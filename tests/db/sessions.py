"""Several sessions at once: calls in threads, and who waits for whom."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db import connections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg


@contextmanager
def in_thread(call: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """Run `call` beside the block, on connections of its own; yield what waits for its result."""

    def run() -> Any:
        try:
            return call()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run)
        yield lambda: future.result(timeout=30)
        future.result(timeout=30)


def blocks_somebody(session: psycopg.Connection[Any]) -> bool:
    """Whether another session waits for a lock that this one holds."""
    waiting = session.execute(
        "select from pg_locks where not granted and pg_backend_pid() = any(pg_blocking_pids(pid))"
    )
    return waiting.fetchone() is not None
