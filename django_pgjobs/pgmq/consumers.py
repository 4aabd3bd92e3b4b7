"""Who handles the messages of a queue: `@consumer`, and the table of what it declared.

Invariant: a queue has one consumer in a project, so that what becomes of a message does not depend on
which one is faster.
"""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from django.apps import apps
from django.core.checks import CheckMessage, Error, register

from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.pgmq.dead_letters import DeadLetters
from django_pgjobs.pgmq.queues import Queue, count, whole
from django_pgjobs.refusals import shown

Handler = TypeVar("Handler", bound=Callable[..., Any])

_consumers: dict[Queue, Consumer] = {}


@dataclass(frozen=True)
class Consumer:
    """The handler of a queue, and what becomes of a message."""

    queue: Queue
    handler: Callable[..., Any]
    vt: int  # seconds
    qty: int
    max_reads: int
    dead_letters: DeadLetters | None
    atomic: bool
    delete: bool

    @property
    def is_async(self) -> bool:
        """Whether it runs on an event loop."""
        return inspect.iscoroutinefunction(self.handler)


def consumer(  # noqa: PLR0913 -- every option of a consumer
    queue: str,
    *,
    vt: float | datetime.timedelta = 30,
    qty: int = 20,
    max_reads: int = 5,
    dead_letter: str | None = None,
    atomic: bool = False,
    delete: bool = False,
    plain: bool = False,
    using: str | None = None,
) -> Callable[[Handler], Handler]:
    """Declare a function, sync or async, as the handler of a queue's messages. It stays as it is.

    `runjobs` calls it with the JSON of each message.

    Args:
        queue: the queue's name in pgmq.
        vt: how long a message is hidden from others, in seconds; it is prolonged while its handler lives.
            A message whose handler has failed or died is read again when that is over.
        qty: how many messages a process holds at a time: one for each thread, and short ones ahead.
        max_reads: how often a message is read. One whose last time failed goes to the dead letters.
        dead_letter: the queue for those; without one they go to the archive.
        atomic: whether the handler's writes and the end of the message are one transaction. Not for
            async handlers.
        delete: whether a message that was handled is deleted instead of archived.
        plain: whether the handler is given the JSON as it is, so that a message can name no row of a model.
        using: the alias of the database; by default the one that the routers give.

    Raises:
        InvalidOption: an option has the wrong type or is out of range, the handler cannot be called with
            one argument, or the queue has another consumer.

    """
    source = Queue(queue, using, plain=plain)
    seconds = whole("vt", vt)
    if seconds < 1:
        raise InvalidOption(f"vt must be at least 1 second, got {shown(vt)}. Choose 30, say.")
    if dead_letter == queue:
        raise InvalidOption(
            f"dead_letter must be another queue than that of the consumer, got {dead_letter!r}. "
            f"Choose '{queue}_dead', say."
        )
    declared = partial(
        Consumer,
        source,
        vt=seconds,
        qty=count("qty", qty),
        max_reads=count("max_reads", max_reads),
        dead_letters=None if dead_letter is None else DeadLetters(dead_letter, using),
        atomic=atomic,
        delete=delete,
    )

    def declare(handler: Handler) -> Handler:
        new = declared(handler=handler)
        _check(new)
        _consumers[source] = new
        return handler

    return declare


def consumers() -> dict[Queue, Consumer]:
    """Return all that are declared, by their queues."""
    return dict(_consumers)


def named(name: str, alias: str) -> list[Consumer]:
    """Return the consumer of the queue of this name: where several databases have one, that of this database."""
    found = [one for one in _consumers.values() if one.queue.name == name]
    return [one for one in found if one.queue.alias == alias] or found


@register  # here, since an app that is not listed registers nothing
def check_app(**_kwargs: Any) -> list[CheckMessage]:
    """Report consumers that never run, for the app is not listed: pgjobs.E062."""
    if not _consumers or apps.is_installed("django_pgjobs.pgmq"):
        return []
    names = ", ".join(sorted(one.queue.name for one in _consumers.values()))
    return [
        Error(
            f"The app django_pgjobs.pgmq must be installed where there are consumers, got consumers of {names}.",
            hint="Add 'django_pgjobs.pgmq' to INSTALLED_APPS, and run manage.py migrate: until then runjobs "
            "passes over them.",
            id="pgjobs.E062",
        )
    ]


def _check(new: Consumer) -> None:
    name = _place(new.handler)
    try:
        inspect.signature(new.handler).bind(None)
    except TypeError as error:
        raise InvalidOption(
            f"The handler {name} must take one argument, the message, got: {error}."
        ) from None
    if new.atomic and new.is_async:
        raise InvalidOption(
            f"atomic must be False for the async handler {name}, got True. Django has no transactions "
            "in async code."
        )
    for queue, other in _consumers.items():
        is_same = queue.name == new.queue.name and queue.alias == new.queue.alias
        if is_same and (queue, _place(other.handler)) != (new.queue, name):
            raise InvalidOption(
                f"The queue {new.queue.name!r} must have one consumer, got {name} and "
                f"{_place(other.handler)}. "
                "Send to two queues, or call both from one handler."
            )


def _place(handler: Callable[..., Any]) -> str:
    """Where it is written: a module that is imported anew declares the same handler again."""
    return f"{handler.__module__}.{getattr(handler, '__qualname__', type(handler).__qualname__)}"
