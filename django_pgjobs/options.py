"""The options of a job: what `@job` declares and `.using()` changes.

Invariant: an `Options` that exists is valid. Each fault is refused where the option is written,
by its name, long before a worker sees the job.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from django.conf import settings
from django.utils import timezone

from django_pgjobs import delays, subjects
from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.limits import check_key
from django_pgjobs.uniqueness import Unique, check_own_key

if TYPE_CHECKING:
    from django.db.models import Model

LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100
MOST_ATTEMPTS = 32_767
KIND_LENGTH = 200  # characters, as the column
QUEUE_BYTES = 63  # as the names of PostgreSQL's own objects

# What Python's datetime can hold in every time zone. It also keeps PostgreSQL's infinities and the
# years past 9999 out, which psycopg cannot read.
EARLIEST = datetime.datetime(1, 1, 2, tzinfo=datetime.UTC)
LATEST = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)
LONGEST_DELAY = delays.LONGEST
LONGEST_TIMEOUT = 30 * 86_400  # seconds

_DEFAULT_RULE = Unique()


class Changes(TypedDict, total=False):
    """The keyword arguments of `JobType.using()`."""

    queue: str
    priority: int
    max_attempts: int | None
    run_at: datetime.datetime | None
    delay: float | datetime.timedelta | None
    unique: Unique | None
    unique_key: str | None
    concurrency_key: str | None
    subject: Model | None
    database: str | None


class Entry(NamedTuple):
    """What the jobs of one enqueue do not have in common."""

    payload: str  # as JSON
    concurrency_key: str | None = None
    unique_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a job is enqueued.

    `max_attempts` None stands for `PGJOBS["MAX_ATTEMPTS"]`, `database` None for the alias that the
    routers give for writing jobs. `delay` is in seconds. `unique_key` stands for the key that
    `unique` would make of the payload, `concurrency_key` for the one that the kind's limits give.
    `subject` is the saved model instance that the job is about.

    Raises:
        InvalidOption: an option has the wrong type or is out of range.

    """

    queue: str = "default"
    priority: int = 0
    max_attempts: int | None = None
    run_at: datetime.datetime | None = None
    delay: float | datetime.timedelta | None = None
    unique: Unique | None = None
    unique_key: str | None = None
    concurrency_key: str | None = None
    subject: Model | None = None
    database: str | None = None
    meta: Mapping[str, object] | None = None  # what the framework notes, never a caller

    def __post_init__(self) -> None:
        """Check every option."""
        check_queue(self.queue)
        _check_int("priority", self.priority, LOWEST_PRIORITY, HIGHEST_PRIORITY)
        if self.max_attempts is not None:
            _check_int("max_attempts", self.max_attempts, 1, MOST_ATTEMPTS)
        if self.run_at is not None:
            check_run_at(self.run_at)
        if self.delay is not None:
            check_delay(self.delay)
        if self.run_at is not None and self.delay is not None:
            raise InvalidOption("run_at and delay must not be given together. Choose one of them.")
        if self.unique is not None and not isinstance(self.unique, Unique):
            raise InvalidOption(
                f"unique must be a Unique, got {_short(self.unique)}. Import it from django_pgjobs."
            )
        if self.unique_key is not None:
            check_own_key(self.unique_key)
        if self.concurrency_key is not None:
            check_key(self.concurrency_key)
        if self.subject is not None:
            subjects.check(self.subject)
        if self.database is not None:
            _check_database(self.database)

    @cached_property
    def rule(self) -> Unique | None:
        """The rule of uniqueness, if there is one; a key of one's own needs none to be declared."""
        return _DEFAULT_RULE if self.unique is None and self.unique_key is not None else self.unique

    @cached_property
    def seconds(self) -> float:
        """The delay in seconds; none, or one that is over already, is 0."""
        delay = self.delay or 0.0
        if isinstance(delay, datetime.timedelta):
            delay = delay.total_seconds()
        return float(max(0, delay))  # in this order: an int may be too negative for a float


def check_kind(kind: object) -> str:
    """Return `kind` where it can name a kind of job, or raise `InvalidOption`."""
    if not isinstance(kind, str) or not kind or len(kind) > KIND_LENGTH or not _printable(kind):
        raise InvalidOption(
            f"kind must be 1 to {KIND_LENGTH} printable characters without spaces or commas, "
            f"got {_short(kind)}."
        )
    return kind


def check_queue(queue: object) -> str:
    """Return `queue` where it can name a queue, or raise `InvalidOption`."""
    good = isinstance(queue, str) and queue and _printable(queue)
    if not good or len(str(queue).encode()) > QUEUE_BYTES:
        raise InvalidOption(
            f"queue must be 1 to {QUEUE_BYTES} bytes of printable characters without spaces or "
            f"commas, got {_short(queue)}."
        )
    return str(queue)


def check_run_at(run_at: object, name: str = "run_at") -> datetime.datetime:
    """Return `run_at` where the table can hold it, or raise `InvalidOption`, which calls it `name`."""
    if not isinstance(run_at, datetime.datetime):
        raise InvalidOption(f"{name} must be a datetime, got {_short(run_at)}.")
    naive = timezone.is_naive(run_at)
    if naive and settings.USE_TZ:
        raise InvalidOption(
            f"{name} must be an aware datetime while USE_TZ is True, got {run_at!r}. "
            "Use django.utils.timezone.make_aware()."
        )
    if not EARLIEST <= (run_at.replace(tzinfo=datetime.UTC) if naive else run_at) <= LATEST:
        raise InvalidOption(
            f"{name} must be from {EARLIEST.date()} to {LATEST.date()}, got {run_at!r}."
        )
    return run_at


def check_timeout(timeout: Any) -> float | None:
    """Return `timeout` in seconds where it can bound an attempt, or raise `InvalidOption`."""
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0 < seconds <= LONGEST_TIMEOUT:  # false for NaN
        raise InvalidOption(
            f"timeout must be a timedelta or a number of seconds above 0 and up to "
            f"{LONGEST_TIMEOUT} (30 days), got {_short(timeout)}."
        )
    return float(seconds)


def check_delay(delay: Any, name: str = "delay") -> None:
    """Raise `InvalidOption`, which calls it `name`, unless `delay` is a time to wait."""
    seconds = delay.total_seconds() if isinstance(delay, datetime.timedelta) else delay
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not -math.inf < seconds <= LONGEST_DELAY:  # false for NaN
        raise InvalidOption(
            f"{name} must be a timedelta or a number of seconds up to {LONGEST_DELAY:.0f} "
            f"(100 years), got {_short(delay)}."
        )


def _check_int(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidOption(
            f"{name} must be a whole number from {least} to {most}, got {_short(value)}."
        )


def _check_database(database: object) -> None:
    if not isinstance(database, str) or database not in settings.DATABASES:
        raise InvalidOption(
            f"database must be an alias of settings.DATABASES, got {_short(database)}."
        )


def _printable(name: str) -> bool:
    return name.isprintable() and not any(c.isspace() or c == "," for c in name)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 -- the message must come out whatever the value is
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004
