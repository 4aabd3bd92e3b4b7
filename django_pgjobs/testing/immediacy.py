"""Run jobs as soon as they are committed, as if a worker without any delay were there.

Invariant: a job runs when a worker could first see it: after the outermost atomic block that is not the
test's own, never inside it. What is rolled back never runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from unittest import mock

from django.db import DEFAULT_DB_ALIAS, connections, router, transaction

from django_pgjobs import notify
from django_pgjobs.models import Job
from django_pgjobs.testing.draining import choices, drain, here
from django_pgjobs.testing.kinds import Kind


@contextmanager
def immediate(
    *,
    kinds: Kind | Iterable[Kind] | None = None,
    queues: Iterable[str] | None = None,
    raise_on_failure: bool = False,
) -> Iterator[None]:
    """Run jobs here and now, as soon as they are committed: a context manager, and a decorator.

    Committed is what stands in no atomic block, or whose blocks have ended. Those that are open when
    this begins, and those of `TestCase`, are the test's own and do not count. Then `drain()` runs all
    that is due, and the code that enqueued goes on after that. The arguments are those of `drain()`.
    """
    kinds, queues = choices(kinds, queues, router.db_for_write(Job))
    worker = _Worker(
        lambda alias: drain(
            kinds=kinds, queues=queues, raise_on_failure=raise_on_failure, database=alias
        )
    )
    leave = transaction.Atomic.__exit__

    def leave_and_work(
        block: transaction.Atomic,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        committed = False  # so it stays where the commit fails
        try:
            leave(block, kind, error, trace)
            committed = error is None
        finally:
            worker.note_end(block.using or DEFAULT_DB_ALIAS, committed=committed)

    # Wherever a job becomes due, by an enqueue or a verb, workers are woken. The end of a block shows
    # nowhere else: callbacks for the commit are not called inside a TestCase.
    with (
        mock.patch.object(notify, "wake", worker.wake),
        mock.patch.object(transaction.Atomic, "__exit__", leave_and_work),
    ):
        yield


class _Woken(threading.local):
    """The databases for which somebody was woken in one thread: transactions are a thread's own."""

    def __init__(self) -> None:
        self.aliases: set[str] = set()


class _Worker:
    """What works when it is woken, in the thread that wakes it."""

    def __init__(self, drain: Callable[[str], object]) -> None:
        """Take what is open now for the test's own."""
        self._drain = drain
        self._own = [block for alias in connections for block in connections[alias].atomic_blocks]
        self._woken = _Woken()

    def wake(self, alias: str, queue: str) -> None:  # noqa: ARG002 -- as notify.wake()
        """Work now, or at the end of the blocks that are open. Who is at work needs not be woken."""
        if not here.draining:
            self._woken.aliases.add(alias)
            self.note_end(alias, committed=True)

    def note_end(self, alias: str, *, committed: bool) -> None:
        """Work if somebody was woken, and all is committed."""
        woken = self._woken.aliases
        if alias in woken and self._is_outside(alias):
            woken.remove(alias)
            if committed:
                self._drain(alias)

    def _is_outside(self, alias: str) -> bool:
        """Whether no block is open here but the test's own."""
        return all(
            block in self._own or block._from_testcase  # type: ignore[attr-defined]  # noqa: SLF001 -- Django's
            for block in connections[alias].atomic_blocks
        )
