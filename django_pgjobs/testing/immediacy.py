"""Run jobs as soon as they are committed, as if a worker without any delay were there.

Invariant: a job runs when a worker could first see it: after the outermost atomic block that is not the
test's own, never inside it. What is rolled back never runs.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import ParamSpec, TypeVar
from unittest import mock

from django.db import DEFAULT_DB_ALIAS, connections, router, transaction

from django_pgjobs import notify
from django_pgjobs.models import Job
from django_pgjobs.testing.draining import choices, drain, here
from django_pgjobs.testing.kinds import Kind

P = ParamSpec("P")
R = TypeVar("R")
# What returns before its body has run.
_LATER = (
    inspect.iscoroutinefunction,
    inspect.isasyncgenfunction,
    inspect.isgeneratorfunction,
)


class Immediate:
    """A time in which jobs run at once: a context manager, and a decorator of functions."""

    def __init__(self, begin: Callable[[], AbstractContextManager[None]]) -> None:
        """Know how such a time begins."""
        self._begin = begin
        self._begun: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        """Begin."""
        begun = self._begin()
        begun.__enter__()
        self._begun.append(begun)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        self._begun.pop().__exit__(kind, error, trace)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return a function that calls this one in such a time.

        Raises:
            TypeError: it would run after its call has returned, or it is no function.

        """
        _check_function(function)

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._begin():
                return function(*args, **kwargs)

        return called


def _check_function(function: object) -> None:
    advice = "Write `with immediate():` inside it."
    if inspect.isclass(function):
        advice = "Call self.enterContext(immediate()) in its setUp(), or decorate its methods."
    elif not any(is_later(function) for is_later in _LATER):
        return
    raise TypeError(
        f"@immediate() must decorate a function that is neither async nor a generator, got {function!r:.200}. "
        + advice
    )


def immediate(
    *,
    kinds: Kind | Iterable[Kind] | None = None,
    queues: Iterable[str] | None = None,
    raise_on_failure: bool = False,
) -> Immediate:
    """Run jobs here and now, as soon as they are committed: a context manager, and a decorator.

    Committed is what stands in no atomic block, or whose blocks have ended. Those that are open when
    this begins, and those of `TestCase`, are the test's own and do not count. Then `drain()` runs all
    that is due, and the code that enqueued goes on after that. The arguments are those of `drain()`.

    As a decorator it raises a `TypeError` for what is no plain function: an async one, a generator, a class.
    """
    return Immediate(lambda: _at_once(kinds, queues, raise_on_failure=raise_on_failure))


@contextmanager
def _at_once(
    kinds: Kind | Iterable[Kind] | None, queues: Iterable[str] | None, *, raise_on_failure: bool
) -> Iterator[None]:
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
