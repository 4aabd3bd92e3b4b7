"""The `PGJOBS` setting: its keys, their defaults and ranges, checked in this one place.

Invariant: `get()` answers with complete, valid settings or raises; nobody else reads
`settings.PGJOBS`. `manage.py check` reports the same problems with their ids and hints.
"""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from django_pgjobs import limits


@dataclass(frozen=True)
class Settings:
    """The values of `PGJOBS`, lower-cased. Times are seconds."""

    max_attempts: int = 5
    lease: float = 60.0
    heartbeat: float = 15.0
    poll: float = 1.0
    notify: bool = True
    listen_database: str | None = None
    shutdown_timeout: float = 30.0
    max_payload_bytes: int = 100_000
    keep_done: float | None = 7 * 86_400.0
    keep_failed: float | None = 30 * 86_400.0
    keep_cancelled: float | None = 30 * 86_400.0
    queues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    secret_keys: str = (
        r"(?i)pass(word|wd|phrase|code)|pwd|secret|token|(api|private)[-_]?key|credential"  # noqa: S105 -- names of secrets
        r"|auth(?!or(?!i[sz]))|cookie"  # not of an author
    )
    drain_token: str | None = field(default=None, repr=False)

    @property
    def transaction_queues(self) -> frozenset[str]:
        """The queues whose jobs are claimed, run and settled in one transaction each."""
        said = self.queues.items()
        return frozenset(name for name, options in said if options.get("claim") == "transaction")

    @property
    def limited_queues(self) -> frozenset[str]:
        """The queues that have a limit or a rate of their own."""
        said = self.queues.items()
        return frozenset(name for name, options in said if {"concurrency", "rate"} & options.keys())

    @property
    def unanswered(self) -> float:
        """How long a lease is sure without an answer: nobody can take it for lost before."""
        return self.lease - self.heartbeat

    @property
    def silence(self) -> float:
        """How long a keeper waits for an answer: there is time to send the heartbeat once more."""
        return self.unanswered / 2


class Problem(NamedTuple):
    """One fault of the setting: the id of its system check, what is wrong, what to do."""

    id: str
    message: str
    hint: str


KEYS = {field.name.upper(): field.name for field in fields(Settings)}
_QUEUE_OPTIONS: dict[str, tuple[Callable[[object], bool], str]] = {
    "claim": (lambda value: value in ("lease", "transaction"), "'lease' or 'transaction'"),
    "concurrency": (
        lambda value: type(value) is int and 1 <= value <= limits.MOST,
        f"a whole number from 1 to {limits.MOST}",
    ),
    "rate": (
        lambda value: isinstance(value, limits.Rate) and value.key is None,
        "a Rate without a key",
    ),
}
_COUNTS = {"MAX_ATTEMPTS": 32_767, "MAX_PAYLOAD_BYTES": 2**28}
_SHORTEST = 0.01  # seconds; half a HEARTBEAT bounds waits for locks, and 0 ms would mean no bound
_LONGEST = 100 * 365 * 86_400.0
TOKEN = 32  # characters: 128 bits where they are hexadecimal


def problems(given: object) -> Iterator[Problem]:
    """Yield every fault of a `PGJOBS` value, none where it is valid."""
    if not isinstance(given, Mapping):
        yield Problem(
            "pgjobs.E001", f"PGJOBS must be a dict, got {given!r}.", "Remove it or set {}."
        )
        return
    faulty = False
    for key, value in given.items():
        if key not in KEYS:
            yield _unknown(key)
        elif key == "QUEUES":
            yield from _queue_problems(value)
        elif expected := _expected(key, value):
            faulty = True
            got = _veiled(value) if key == "DRAIN_TOKEN" else repr(value)
            yield Problem(
                "pgjobs.E003",
                f"PGJOBS[{key!r}] must be {expected}, got {got}.",
                "See the reference of settings; remove the key to use the default.",
            )
    if not faulty:
        chosen = _build(given)
        alias = chosen.listen_database
        if alias is not None and alias not in settings.DATABASES:
            yield Problem(
                "pgjobs.E006",
                f"PGJOBS['LISTEN_DATABASE'] must be an alias in DATABASES, got {alias!r}.",
                "Name the alias of a direct connection to the server of the jobs, or remove it.",
            )
        if chosen.lease <= 2 * chosen.heartbeat:
            yield Problem(
                "pgjobs.E004",
                f"PGJOBS['LEASE'] must be more than twice PGJOBS['HEARTBEAT'], got "
                f"{chosen.lease:g} and {chosen.heartbeat:g} seconds.",
                "With less, one late heartbeat makes a living worker look dead, and its jobs run "
                "twice. Raise LEASE or lower HEARTBEAT.",
            )


@cache
def get() -> Settings:
    """Return the project's settings.

    Raises:
        ImproperlyConfigured: where `problems()` has something to say.

    """
    given = getattr(settings, "PGJOBS", {})
    for problem in problems(given):
        raise ImproperlyConfigured(f"{problem.message} {problem.hint} ({problem.id})")
    return _build(given)


def _build(given: Mapping[str, Any]) -> Settings:
    values: dict[str, Any] = {
        KEYS[key]: value.total_seconds() if isinstance(value, datetime.timedelta) else value
        for key, value in given.items()
        if key in KEYS
    }
    return Settings(**values)


def _unknown(key: object, where: str = "PGJOBS", known: Iterable[str] = tuple(KEYS)) -> Problem:
    folded = {name.upper(): name for name in known}
    # With less than this LIMIT is near to CLAIM.
    near = difflib.get_close_matches(str(key).upper(), folded, n=1, cutoff=0.7)
    return Problem(
        "pgjobs.E002",
        f"{where} has an unknown key, {key!r}.",
        f"Did you mean {folded[near[0]]!r}?"
        if near
        else "The keys are {}.".format(", ".join(known)),
    )


def _queue_problems(queues: object) -> Iterator[Problem]:
    if not isinstance(queues, Mapping):
        yield Problem(
            "pgjobs.E003",
            f"PGJOBS['QUEUES'] must be a dict with a dict of options for each queue, got {queues!r}.",
            "See the reference of settings; remove the key to use the default.",
        )
        return
    for name, options in queues.items():
        where = f"PGJOBS['QUEUES'][{name!r}]"
        if not isinstance(name, str) or not name or not isinstance(options, Mapping):
            yield Problem(
                "pgjobs.E003",
                f"{where} must be a dict of options under the name of a queue, got {options!r}.",
                'Write it as {"mail": {"claim": "transaction"}}, or remove it.',
            )
            continue
        for option, value in options.items():
            if option not in _QUEUE_OPTIONS:
                yield _unknown(option, where, _QUEUE_OPTIONS)
            elif not _QUEUE_OPTIONS[option][0](value):
                yield Problem(
                    "pgjobs.E003",
                    f"{where}[{option!r}] must be {_QUEUE_OPTIONS[option][1]}, got {value!r}.",
                    "See the reference of settings; remove the key to use the default.",
                )
        if options.get("claim") == "transaction" and {"concurrency", "rate"} & options.keys():
            yield Problem(
                "pgjobs.E007",
                f"{where} must not claim by transaction and have a limit, got {options!r}.",
                "A job that is claimed by transaction reads pending while it runs, so nobody can count "
                "it. Claim the queue by lease, or remove its limit.",
            )


def _expected(key: str, value: Any) -> str:
    """Say what `value` should have been; empty where it is fine."""
    if key in _COUNTS:
        fits = type(value) is int and 1 <= value <= _COUNTS[key]
        return "" if fits else f"a whole number from 1 to {_COUNTS[key]}"
    if key in _KINDS:
        is_fit, expected = _KINDS[key]
        return "" if is_fit(value) else expected
    keeps = key.startswith("KEEP_")
    if keeps and value is None:
        return ""
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    number = isinstance(value, int | float) and not isinstance(value, bool)
    least = 0 if keeps else _SHORTEST
    if number and least <= value <= _LONGEST:  # not so for NaN
        return ""
    return f"a number of seconds ({least} or more) or a timedelta" + (", or None for ever" * keeps)


def _is_token(value: object) -> bool:
    """Whether it can stand in a header as it is, and be guessed by nobody."""
    return isinstance(value, str) and re.fullmatch(rf"[!-~]{{{TOKEN},}}", value) is not None


def _veiled(value: object) -> str:
    """Name a secret without telling it."""
    return f"a text of {len(value)}" if isinstance(value, str) else f"a {type(value).__name__}"


def _is_pattern(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(re.compile(value))
    except re.error:
        return False


_KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "NOTIFY": (lambda value: isinstance(value, bool), "True or False"),
    "LISTEN_DATABASE": (
        lambda value: value is None or isinstance(value, str),
        "an alias in DATABASES, or None",
    ),
    "DRAIN_TOKEN": (
        lambda value: value is None or _is_token(value),
        f"a text of {TOKEN} or more printable ASCII characters without spaces, or None",
    ),
    "SECRET_KEYS": (_is_pattern, "a regular expression, as text"),
}


def _forget(*, setting: str, **_kwargs: object) -> None:
    if setting == "PGJOBS":
        get.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_pgjobs.conf")
