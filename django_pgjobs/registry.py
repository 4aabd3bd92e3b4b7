"""Which handler runs a kind: `@job`, and the table of the `JobType`s that it returns.

Invariant: one kind, or alias of a kind, has one handler. A kind that a row names is looked up in
this table, and where it is not there a finder may register what was declared; nothing else is asked, so
that no row can choose code that was not declared as a job.
"""

from __future__ import annotations

import datetime
import difflib
import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    overload,
)

from django_pgjobs.exceptions import DuplicateKind, InvalidOption, UnknownKind
from django_pgjobs.job_types import JobType, P, R, check_names, code_of, refuse_unknown, where
from django_pgjobs.limits import Limit, Limits, Rate
from django_pgjobs.options import Options, check_kind, check_timeout
from django_pgjobs.retries import Delays, Errors, RetryPolicy, check_retries
from django_pgjobs.rules import Recurring
from django_pgjobs.uniqueness import Unique

if TYPE_CHECKING:
    from django_pgjobs.context import JobContext
    from django_pgjobs.job_types import ContextJobType

Finder = Callable[[str], JobType[..., Any] | None]

_kinds: dict[str, JobType[..., Any]] = {}
# Asked for a kind that is not in the table; one that cannot tell raises `UnknownKind`, which says why.
finders: list[Finder] = []
_RETRIES = ("retry", "retry_on", "discard_on")
_OPTIONS = (
    *("kind", "queue", "priority", "max_attempts", *_RETRIES, "timeout", "unique"),
    *("concurrency", "rate", "ordered", "atomic", "takes_context", "aliases", "schedule"),
)


@overload
def job(handler: Callable[P, R], /) -> JobType[P, R]: ...
@overload
def job(
    *,
    kind: str | None = None,
    queue: str = "default",
    priority: int = 0,
    max_attempts: int | None = None,
    retry: RetryPolicy | Delays | None = None,
    retry_on: Errors | None = None,
    discard_on: Errors | None = None,
    timeout: float | datetime.timedelta | None = None,
    unique: Unique | None = None,
    concurrency: Limit | None = None,
    rate: Rate | None = None,
    ordered: bool = False,
    atomic: bool = False,
    takes_context: Literal[True],
    aliases: Iterable[str] = (),
    schedule: Recurring | Iterable[Recurring] = (),
) -> Callable[[Callable[Concatenate[JobContext, P], R]], ContextJobType[P, R]]: ...
@overload
def job(
    *,
    kind: str | None = None,
    queue: str = "default",
    priority: int = 0,
    max_attempts: int | None = None,
    retry: RetryPolicy | Delays | None = None,
    retry_on: Errors | None = None,
    discard_on: Errors | None = None,
    timeout: float | datetime.timedelta | None = None,
    unique: Unique | None = None,
    concurrency: Limit | None = None,
    rate: Rate | None = None,
    ordered: bool = False,
    atomic: bool = False,
    takes_context: Literal[False] = False,
    aliases: Iterable[str] = (),
    schedule: Recurring | Iterable[Recurring] = (),
) -> Callable[[Callable[P, R]], JobType[P, R]]: ...
def job(  # noqa: PLR0913 -- every option of a kind
    handler: Callable[P, R] | None = None,
    /,
    *,
    kind: str | None = None,
    timeout: float | datetime.timedelta | None = None,
    concurrency: Limit | None = None,
    rate: Rate | None = None,
    ordered: bool = False,
    atomic: bool = False,
    takes_context: bool = False,
    aliases: Iterable[str] = (),
    schedule: Recurring | Iterable[Recurring] = (),
    **options: Any,
) -> Any:
    """Declare a function, sync or async, as the handler of a kind of job.

    Args:
        handler: the function, where the decorator is used bare.
        kind: the name stored in the rows; by default the function's own name.
        queue: the queue of its jobs.
        priority: from -100 to 100, higher first.
        max_attempts: how often a job may start; by default `PGJOBS["MAX_ATTEMPTS"]`.
        retry: how long the job waits after a failed attempt: `Exponential()` by default, `Linear()`,
            `Fixed()`, a list of delays, or a function of the attempt's number and its error.
        retry_on: the exceptions after which there is another attempt; by default every one. What is no
            `Exception` is always retried.
        discard_on: the exceptions after which there is none, though `retry_on` covers them.
        timeout: how long an attempt may run, in seconds, up to 30 days; by default for ever.
        unique: the rule by which two of its jobs are one; by default each enqueue is a job.
        concurrency: how many of its jobs run at a time, for each key: `Limit(3, key="customer_id")`.
        rate: how many start in a period, for each key: `Rate(10, per=60)`.
        ordered: whether the jobs of a key run one after the other, each once the one before it is
            final, through all its attempts.
        atomic: whether the handler runs in a transaction on the jobs database that also settles
            the job. Not for async handlers.
        takes_context: whether the handler's first argument is a `JobContext`, which no payload has.
        aliases: earlier names of this kind, whose waiting jobs it goes on handling.
        schedule: when workers enqueue it by themselves: `cron()`, `every()`, or a list of them.

    Raises:
        InvalidOption: an option is unknown, has the wrong type or is out of range, or the handler
            is not a plain function whose arguments all have names.
        InvalidPayload: the payload of a schedule does not fit the handler or cannot be stored.
        DuplicateKind: another handler has this kind or alias.

    """
    refuse_unknown("@job", options, _OPTIONS)
    retries = check_retries(*(options.pop(name, None) for name in _RETRIES))
    declared = Options(**options)
    seconds = check_timeout(timeout)
    limits = Limits(concurrency, rate, ordered)

    def declare(handler: Callable[P, R]) -> JobType[P, R]:
        _check_handler(handler)
        check_atomic(atomic, handler)
        _check_takes_context(takes_context)
        name = check_kind(_named(handler) if kind is None else kind)
        others = check_aliases(aliases)
        job_type = JobType(
            *(handler, name, declared, others, seconds),
            retries=retries,
            limits=limits,
            atomic=atomic,
            takes_context=takes_context,
            schedule=schedule,
        )
        check_names(job_type)
        register(job_type)
        return job_type

    return declare if handler is None else declare(handler)


def register(job_type: JobType[..., Any]) -> None:
    """Enter `job_type` under its kind and aliases.

    Raises:
        DuplicateKind: another handler is there. The same function again, as a reloaded module
            brings it, replaces its older self.
        InvalidOption: another kind has a schedule of the same name.

    """
    for kind in (job_type.kind, *job_type.aliases):
        other = _kinds.get(kind)
        if other is not None and not _again(other.handler, job_type.handler):
            raise DuplicateKind(
                f"Two handlers are declared for the kind {kind!r}: {where(other.handler)} and "
                f"{where(job_type.handler)}. Rename one of them, or give a @job another kind=."
            )
    _check_schedules(job_type)
    for kind in (job_type.kind, *job_type.aliases):
        _kinds[kind] = job_type


def get_job(kind: str) -> JobType[..., Any]:
    """Return the `JobType` of a kind.

    Raises:
        UnknownKind: no handler is registered for it; the message names the nearest known kinds.

    """
    if isinstance(kind, JobType):
        raise UnknownKind(f"A kind must be a str, got {kind!r}. Call its own enqueue().")
    is_text = isinstance(kind, str)
    job_type = (_kinds.get(kind) or _found(kind)) if is_text else None
    if job_type is not None:
        return job_type
    near = difflib.get_close_matches(str(kind), _kinds, n=3)
    hint = (
        f"Did you mean {' or '.join(map(repr, near))}?"
        if near
        else "Declare its handler with @job in jobs.py of an installed app, or with @task in a module of one."
    )
    raise UnknownKind(f"No handler is registered for the kind {kind!r:.300}. {hint}")


def find(kind: str, *, ask: bool = True) -> JobType[..., Any] | None:
    """Return the `JobType` of a kind, or None where there is none; `ask` the finders too."""
    job_type = _kinds.get(kind)
    if job_type is None and ask:
        with suppress(UnknownKind):
            return _found(kind)
    return job_type


def kinds() -> dict[str, JobType[..., Any]]:
    """Return every kind and alias with its `JobType`."""
    return dict(_kinds)


def _found(kind: str) -> JobType[..., Any] | None:
    return next((found for finder in finders if (found := finder(kind))), None)


def _check_handler(handler: object) -> None:
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise InvalidOption(f"@job needs a function that runs, got a generator, {handler!r}.")
    if not inspect.isfunction(handler):
        raise InvalidOption(f"@job needs a function, got {handler!r}. Wrap it in one.")


def check_atomic(atomic: object, handler: Callable[..., Any]) -> None:
    """Demand a bool, and a sync handler where it is True, or raise `InvalidOption`."""
    if not isinstance(atomic, bool):
        raise InvalidOption(f"atomic must be True or False, got {atomic!r}.")
    if atomic and inspect.iscoroutinefunction(handler):
        raise InvalidOption(
            f"atomic=True needs a sync handler, got the coroutine function {handler!r}. Django has no "
            "transactions in async code: make it a def, or leave atomic out and keep what belongs "
            "together in one function for sync_to_async()."
        )


def _check_takes_context(takes_context: object) -> None:
    if not isinstance(takes_context, bool):
        raise InvalidOption(f"takes_context must be True or False, got {takes_context!r}.")


def _named(handler: Callable[..., Any]) -> str:
    if handler.__name__ == "<lambda>":
        raise InvalidOption(f"@job needs a kind= for a lambda, got {handler!r}. Give it one.")
    return handler.__name__


def check_aliases(aliases: Iterable[str]) -> tuple[str, ...]:
    """Return earlier names of a kind where they can be some, or raise `InvalidOption`."""
    if isinstance(aliases, str) or not isinstance(aliases, Iterable):
        raise InvalidOption(f"aliases must be a list of kinds, got {aliases!r}.")
    return tuple(check_kind(alias) for alias in aliases)


def _check_schedules(job_type: JobType[..., Any]) -> None:
    others = [other for other in _kinds.values() if other.kind != job_type.kind]
    taken = {one.name: other.kind for other in others for one in other.schedules}
    for one in job_type.schedules:
        if one.name in taken:
            raise InvalidOption(
                f"The schedules of {job_type.kind!r} and {taken[one.name]!r} must have names that "
                f"differ, got {one.name!r} for both. Give one another name=."
            )


def _again(old: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Say whether `new` is `old` from a module that was read again.

    Its code has been compiled again then. Two closures of one function share their code, and are two
    handlers.
    """
    return new is old or (where(new) == where(old) and code_of(new) is not code_of(old))
