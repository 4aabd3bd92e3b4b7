"""pgmq for Django: message queues with visibility timeouts, on the project's own PostgreSQL.

As in the package above, names are imported when they are first used: the model needs Django's apps.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from django_pgjobs.exceptions import PgmqMissing, QueueMissing

if TYPE_CHECKING:
    from django_pgjobs.pgmq.consumers import consumer
    from django_pgjobs.pgmq.dead_letters import DeadLetter, DeadLetters
    from django_pgjobs.pgmq.messages import Message, Metrics
    from django_pgjobs.pgmq.queues import Queue, list_queues, metrics_all

_HOMES = {
    "DeadLetter": "dead_letters",
    "DeadLetters": "dead_letters",
    "Message": "messages",
    "Metrics": "messages",
    "Queue": "queues",
    "consumer": "consumers",
    "list_queues": "queues",
    "metrics_all": "queues",
}

__all__ = [
    "DeadLetter",
    "DeadLetters",
    "Message",
    "Metrics",
    "PgmqMissing",
    "Queue",
    "QueueMissing",
    "consumer",
    "list_queues",
    "metrics_all",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
