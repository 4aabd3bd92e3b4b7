"""Faults to plant into the view that drains, and into its batches: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any


def any_token_drains() -> None:
    """Let everybody run jobs."""
    from django_pgjobs.views import DrainView  # noqa: PLC0415 -- no models before the apps are loaded

    DrainView.is_authorized = lambda *_: True


def batches_ignore_their_bound() -> None:
    """Do as many jobs as there are."""
    from django_pgjobs import batches  # noqa: PLC0415 -- likewise

    real = batches.run
    batches.run = lambda options, seconds: real(replace(options, max_jobs=None), seconds)


def batches_start_jobs_to_the_end() -> None:
    """Start jobs when the time to start some is over."""
    from django_pgjobs.batches import _Thread  # noqa: PLC0415 -- likewise

    _Thread._stop = lambda _: None


def batches_wait_for_any_handler() -> None:
    """Let what runs take its time."""
    from django_pgjobs.deadlines import Watch  # noqa: PLC0415 -- likewise

    real = Watch.__init__
    Watch.__init__ = lambda self, *_: real(self)


def batches_leave_their_threads() -> None:
    """Answer without waiting for the threads of handlers, and leave them at their work."""
    from django_pgjobs.handlers import Handlers  # noqa: PLC0415 -- likewise

    def leave(self: Any, *_: Any) -> None: ...

    Handlers.close = Handlers.join = leave


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        any_token_drains,
        batches_ignore_their_bound,
        batches_start_jobs_to_the_end,
        batches_wait_for_any_handler,
        batches_leave_their_threads,
    )
}
