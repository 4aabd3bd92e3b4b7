"""A kind of job: its handler, and the options that its jobs are enqueued with.

Invariant: what is enqueued fits the handler, and can be read back as it was given; what is refused was
refused before any SQL.
"""

from __future__ import annotations

import copy
import difflib
import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack

from asgiref.sync import sync_to_async

from django_pgjobs import conf, payloads, rules
from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.limits import Limits, check_key
from django_pgjobs.options import Changes, Entry, Options
from django_pgjobs.retries import DEFAULTS, Retries
from django_pgjobs.rules import Recurring
from django_pgjobs.signatures import Signature

if TYPE_CHECKING:
    from django_pgjobs.context import JobContext
    from django_pgjobs.models import Job

P = ParamSpec("P")
R = TypeVar("R")
# Told by its claim that the handler of an attempt is about to be called, and by its claim and its outcome how
# it has ended. Neither must wait; each returns what else is to be called, where that may.
Started = Callable[[Any], Callable[[], object] | None]
Ended = Callable[[Any, Any], Callable[[], object] | None]
CheckStored = Callable[[Mapping[str, Any]], None]  # raises `InvalidPayload`
_NOWHERE: Mapping[str, str] = {}
# What `using()` cannot change, and where it is declared.
_RUNNING = ("kind", "retry", "retry_on", "discard_on", "timeout", "ordered", "atomic")
_OF_THE_KIND = {
    **dict.fromkeys(("concurrency", "rate"), "@job, or for a queue into PGJOBS['QUEUES']"),
    **dict.fromkeys((*_RUNNING, "takes_context", "aliases", "schedule"), "@job"),
}
_LARGEST = 2**28  # bytes: the settings, which may be faulty, are not asked for at import


class JobType(Generic[P, R]):
    """A kind of job: its handler and the options that its jobs are enqueued with.

    Calling it calls the handler, here and now.
    """

    def __init__(  # noqa: PLR0913 -- what @job takes
        self,
        handler: Callable[P, R],
        kind: str,
        options: Options,
        aliases: tuple[str, ...] = (),
        timeout: float | None = None,
        *,
        retries: Retries = DEFAULTS,
        limits: Limits = Limits(),  # noqa: B008 -- frozen
        atomic: bool = False,
        takes_context: bool = False,
        schedule: Recurring | Iterable[Recurring] = (),
        signature: Signature | None = None,
    ) -> None:
        """Describe a kind; `@job` also registers it."""
        functools.update_wrapper(self, handler)  # first: the function's attributes must not win
        self.handler = handler
        self.kind = kind
        self.options = options
        self.aliases = aliases
        self.timeout = timeout  # seconds
        self.retries = retries
        self.atomic = atomic
        self.limits = limits
        self.takes_context = takes_context
        self.is_async = inspect.iscoroutinefunction(handler)
        self.listens = takes_context or self.is_async  # a running one can be asked to stop
        self.signature = signature or Signature(handler, takes_context=takes_context)
        self.started: Started | None = None
        self.ended: Ended | None = None
        self.check_stored: CheckStored | None = None
        self.schedules = tuple(map(self._stored, rules.named(schedule, kind)))

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the handler itself."""
        return self.handler(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<JobType {self.kind}: {where(self.handler)}>"

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Insert one pending job in the current transaction and return it.

        The job exists if and only if that transaction (or savepoint) commits. With no transaction
        open it is committed at once. Where a rule of uniqueness finds a job that stands for this one,
        that one is returned.

        Raises:
            InvalidPayload: the arguments do not fit the handler or cannot be stored. Nothing was
                sent to the database, and the transaction is as usable as before.
            DuplicateJob: the rule says so; the transaction is as usable as before.

        """
        entry = self._entry(args, kwargs)
        way = _plain() if entry.unique_key is None else _unique()
        job: Job = way.insert(self.kind, entry, self.options)
        return job

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job:
        """`enqueue()` for async code."""
        return await sync_to_async(self.enqueue)(*args, **kwargs)

    def enqueue_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[int]:
        """Insert one pending job for each payload, all of them or none; return their ids in order.

        Each payload maps the handler's argument names to values. They are taken from the iterable
        in chunks, so a generator of any length needs little memory.

        Raises:
            InvalidPayload, DuplicateJob: as `enqueue()`; no job of this call exists then.

        """
        entries = (self._entry((), payload) for payload in payloads)
        way = _plain() if self.options.rule is None else _unique()
        ids: list[int] = way.insert_many(self.kind, entries, self.options)
        return ids

    def using(self, **changes: Unpack[Changes]) -> Self:
        """Return a copy that enqueues with other options.

        Raises:
            InvalidOption: an option is unknown, has the wrong type or is out of range.

        """
        refuse_unknown("using()", changes, Changes.__annotations__, _OF_THE_KIND)
        other = copy.copy(self)
        other.options = replace(self.options, **changes)
        check_names(other)
        return other

    def _entry(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Entry:
        payload = self.signature.bind(self.kind, args, kwargs)
        text = payloads.encode(payload, max_bytes=conf.get().max_payload_bytes)
        options = self.options
        if options.rule is None and options.concurrency_key is None and not self.limits:
            return Entry(text)  # as most are
        return Entry(text, self._concurrency_key(payload), self._unique_key(payload))

    def _concurrency_key(self, payload: Mapping[str, Any]) -> str | None:
        if self.options.concurrency_key is not None:
            return check_key(self.options.concurrency_key)
        if self.limits:
            return self.limits.key_of(self.kind, payload, self.signature.defaults)
        return None

    def _unique_key(self, payload: Mapping[str, Any]) -> str | None:
        rule = self.options.rule
        if rule is None:
            return None
        return rule.key_of(self.kind, payload, self.options.unique_key)

    def _stored(self, one: Recurring) -> Recurring:
        """Return a schedule with its payload as the rows have it, or raise `InvalidPayload`."""
        payload = self.signature.bind(self.kind, (), one.payload)
        return replace(one, payload=json.loads(payloads.encode(payload, max_bytes=_LARGEST)))


if TYPE_CHECKING:

    class ContextJobType(JobType[P, R]):
        """One whose handler takes a context: called by hand, it needs one."""

        def __call__(  # type: ignore[override]  # as its handler
            self, context: JobContext, /, *args: P.args, **kwargs: P.kwargs
        ) -> R:
            """Call the handler itself."""


# What inserts: there are no models before the apps are loaded, and an import is no small part of an enqueue.


@functools.cache
def _plain() -> ModuleType:
    from django_pgjobs import enqueueing  # noqa: PLC0415

    return enqueueing


@functools.cache
def _unique() -> ModuleType:
    from django_pgjobs import duplicates  # noqa: PLC0415

    return duplicates


def check_names(job_type: JobType[..., Any]) -> None:
    """Demand that options which name arguments name some of the handler's, or raise `InvalidOption`."""
    if job_type.options.unique is not None:
        job_type.signature.check_names("unique", job_type.options.unique.names)
    if isinstance(job_type.limits.key, str):
        job_type.signature.check_names("key", [job_type.limits.key])


def refuse_unknown(
    where: str, given: Iterable[str], known: Iterable[str], elsewhere: Mapping[str, str] = _NOWHERE
) -> None:
    """Raise `InvalidOption` for an option that is not known, with the one, or the place, that may be meant."""
    for name in given:
        if name in elsewhere:
            raise InvalidOption(
                f"{where} has no option {name!r}, which is one of the kind. Write it into {elsewhere[name]}."
            )
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"It takes {', '.join(known)}."
            raise InvalidOption(f"{where} has no option {name!r}. {hint}")


def where(handler: Callable[..., Any]) -> str:
    """Say which function this is, for people."""
    code = code_of(handler)
    return f"{handler.__qualname__} ({code.co_filename}:{code.co_firstlineno})"


def code_of(handler: Callable[..., Any]) -> CodeType:
    """Return the code of a function, under whatever wraps it."""
    code: CodeType = inspect.unwrap(handler).__code__
    return code
