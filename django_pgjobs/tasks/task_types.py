"""A task as a kind of job: its module path is the kind, its call is the payload.

Arguments that have names are the payload's, so that limits, rules of uniqueness and pages know them by
name; `meta` says how many were passed by position. A function that takes others too has the payload
`{"args": [...], "kwargs": {...}}`.

Invariant: what the worker calls is the function of a task, with the arguments that `enqueue()` was given.
"""

from __future__ import annotations

import copy
import datetime
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured

from django_pgjobs import registry
from django_pgjobs.exceptions import InvalidOption, InvalidPayload
from django_pgjobs.job_types import JobType, check_names
from django_pgjobs.limits import Limits
from django_pgjobs.options import Options, check_timeout
from django_pgjobs.payloads import MAX_DEPTH
from django_pgjobs.retries import check_retries
from django_pgjobs.tasks import calls, contexts, framework, signals
from django_pgjobs.tasks.framework import normalize_json

if TYPE_CHECKING:
    from django_pgjobs.context import JobContext
    from django_pgjobs.models import Job

# What each job has of its own, so that a copy of the task may change it: it goes into the row.
OF_JOBS = ("max_attempts", "unique", "unique_key", "concurrency_key", "subject")


class TaskType(JobType[..., Any]):
    """The kind of a task's jobs."""

    def __init__(self, task: Any) -> None:
        """Describe the kind of `task`, which is the framework's or this app's.

        Raises:
            InvalidOption: an option has the wrong type or is out of range.

        """

        def option(name: str, default: Any = None) -> Any:
            return getattr(task, name, default)

        _check_runs(task.func)
        self.task = task
        call = calls.Call(task)
        self.spread = call.has_nameless
        super().__init__(
            calls.spread if self.spread else task.func,
            task.module_path,
            _options(Options(), task),
            registry.check_aliases(option("aliases", ())),
            check_timeout(option("timeout")),
            retries=check_retries(option("retry"), option("retry_on"), option("discard_on")),
            limits=Limits(option("concurrency"), option("rate"), option("ordered", default=False)),
            atomic=option("atomic", default=False),
            takes_context=task.takes_context and not self.spread,
            schedule=option("schedule", ()),
            signature=calls.CallSignature(call) if self.spread else None,
        )
        registry.check_atomic(self.atomic, task.func)
        _check_names(self)
        functools.update_wrapper(self, task.func, updated=())
        self.is_async = inspect.iscoroutinefunction(task.func)
        self.listens = task.takes_context or self.is_async
        # The signature was that of `calls.spread`, which takes none, where arguments have no names.
        self.takes_context = task.takes_context
        self.handler = (_async_handler if self.is_async else _sync_handler)(self)
        self.started = functools.partial(signals.started, self)
        self.ended = functools.partial(signals.ended, self)
        self.check_stored = call.check_shape if self.spread else None

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.task.func(*args, **kwargs)

    def place(self, task: Any, alias: str, args: list[Any], kwargs: dict[str, Any]) -> Job:
        """Insert a job of `task`, which is this kind's or a copy of it; raise as `enqueue()` does."""
        positional = 0 if self.spread else len(args)
        if task.run_after is None and (task is self.task or not _has_own(task, self.task)):
            job_type = _plain(self, task.queue_name, task.priority, alias, positional)
        else:
            job_type = _with(self, _options(self.options, task), _note(task, alias, positional))
        if self.spread:
            return job_type.enqueue(args=args, kwargs=kwargs)
        return job_type.enqueue(*args, **kwargs)

    def payload_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the payload of a call of the task; raise as the `enqueue()` of its backend does."""
        values, named = as_json(self.task, list(args)), as_json(self.task, kwargs)
        if self.spread:
            return self.signature.bind(self.kind, (), {"args": values, "kwargs": named})
        return self.signature.bind(self.kind, tuple(values), named)

    def check(self, task: Any) -> None:
        """Demand that the options of a copy of the task be valid for its jobs, or raise `InvalidTask`."""
        if not _has_own(task, self.task):
            return
        try:
            _check_names(_with(self, _options(self.options, task), {}))
        except InvalidOption as error:
            raise framework.InvalidTask(str(error)) from error

    def arguments(
        self, payload: Mapping[str, Any], positional: int
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments as they were passed, from a stored payload."""
        if self.spread:
            if calls.is_call(payload):
                return payload["args"], payload["kwargs"]
            return [], dict(payload)
        names = [name for name in self.signature.names[:positional] if name in payload]
        rest = {name: value for name, value in payload.items() if name not in names}
        return [payload[name] for name in names], rest


def as_json(task: Any, arguments: Any) -> Any:
    """Return arguments as JSON has them, as the framework does; raise `InvalidPayload` for too deep ones."""
    try:
        return normalize_json(arguments)
    except RecursionError:
        raise InvalidPayload(
            f"The arguments of {task.module_path} must be nested at most {MAX_DEPTH} deep, got more. "
            "Pass less, or a cycle's parts by their ids."
        ) from None


def of(task: Any) -> TaskType:
    """Return the kind of `task`; a task that is seen for the first time is registered.

    Raises:
        InvalidTask: an option has the wrong type or is out of range.
        DuplicateKind: another function has its module path.
        ImproperlyConfigured: this app is not installed.

    """
    known = registry.find(task.module_path, ask=False)
    if isinstance(known, TaskType) and known.task.func is task.func:
        return known
    if apps.apps_ready:  # else the check of the backend says so
        demand_app()
    try:
        task_type = TaskType(task)
    except InvalidOption as error:
        raise framework.InvalidTask(str(error)) from error
    registry.register(task_type)
    return task_type


def is_installed() -> bool:
    """Say whether the project has this app, and so its models."""
    return apps.is_installed("django_pgjobs")


def demand_app() -> None:
    """Raise `ImproperlyConfigured` unless the project has this app."""
    if not is_installed():
        raise ImproperlyConfigured(
            "'django_pgjobs' must be in INSTALLED_APPS for PgJobsBackend in TASKS, got an app that is not. "
            "Add it there, and run manage.py migrate."
        )


def _sync_handler(task_type: TaskType) -> Callable[..., Any]:
    function, takes_context, spread = _parts(task_type)

    @functools.wraps(function)
    def handler(*context: JobContext, **payload: Any) -> Any:
        args, kwargs = (payload["args"], payload["kwargs"]) if spread else ((), payload)
        if takes_context:
            args = (contexts.of(task_type, *context), *args)
        try:
            return _normal(task_type, function(*args, **kwargs))
        except BaseException as error:
            signals.note(error)
            raise

    return handler


def _async_handler(task_type: TaskType) -> Callable[..., Any]:
    function, takes_context, spread = _parts(task_type)

    @functools.wraps(function)
    async def handler(*context: JobContext, **payload: Any) -> Any:
        args, kwargs = (payload["args"], payload["kwargs"]) if spread else ((), payload)
        if takes_context:
            args = (await sync_to_async(contexts.of)(task_type, *context), *args)
        try:
            return _normal(task_type, await function(*args, **kwargs))
        except BaseException as error:
            signals.note(error)
            raise

    return handler


def _normal(task_type: TaskType, value: Any) -> Any:
    """Return what the framework makes of a value; it asks what it is three times before None."""
    if value is None:
        return None
    normal = normalize_json(value)
    if type(normal) in (dict, list):
        _check_keys(task_type, normal)
    return normal


def _check_keys(task_type: TaskType, value: Any) -> None:
    """Demand that dicts have the keys that JSON has, which the framework leaves out, or raise `TypeError`."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(
                    f"Keys of what {task_type.kind} returns must be text, got {key!r:.80}. "
                    "JSON has no others: return str(key)."
                )
        value = value.values()
    for one in value:
        if isinstance(one, (dict, list)):
            _check_keys(task_type, one)


def _parts(task_type: TaskType) -> tuple[Callable[..., Any], bool, bool]:
    return task_type.task.func, task_type.task.takes_context, task_type.spread


def _check_runs(function: Callable[..., Any]) -> None:
    """Demand a function that runs when it is called, or raise `InvalidOption`."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidOption(
            f"@task must decorate a function that runs when it is called, got a generator, {function!r}. "
            "Return a list, or loop over it in another function."
        )


def _check_names(task_type: TaskType) -> None:
    """Demand that options which name arguments name some of the function's, or raise `InvalidOption`."""
    if not task_type.spread:
        check_names(task_type)
        return
    rule, key = task_type.options.unique, task_type.limits.key
    named = [("unique", name) for name in (rule.names if rule else ())]
    for what, name in [*named, *([("key", key)] if isinstance(key, str) else [])]:
        raise InvalidOption(
            f"{what} must name no argument of {task_type.kind}, whose arguments do not all have names, got "
            f"{name!r}. Do without / and *args there, or give a callable on {{'args': [...], 'kwargs': {{...}}}}."
        )


def _has_own(task: Any, declared: Any) -> bool:
    """Say whether a task has options for its jobs that are not those of the one that was declared."""
    for name in OF_JOBS:
        known = getattr(declared, name, None)
        if getattr(task, name, known) is not known:  # a task of another backend has none
            return True
    return False


def _options(options: Options, task: Any) -> Options:
    """Return `options` with those of `task` for its jobs."""
    changes = {name: getattr(task, name) for name in OF_JOBS if hasattr(task, name)}
    if isinstance(task.run_after, datetime.timedelta):
        changes["delay"] = task.run_after
    else:
        changes["run_at"] = task.run_after
    return replace(options, queue=task.queue_name, priority=int(task.priority), **changes)


def _note(task: Any, alias: str, positional: int) -> dict[str, Any]:
    """Return what `meta` says of the task; `results` reads it back."""
    note: dict[str, Any] = {"backend": alias}
    if positional:
        note["args"] = positional
    if isinstance(task.run_after, datetime.timedelta):
        note["run_after"] = task.run_after.total_seconds()
    elif task.run_after is not None:
        note["run_after"] = task.run_after.isoformat()
    return note


def _with(task_type: TaskType, options: Options, note: dict[str, Any]) -> TaskType:
    job_type = copy.copy(task_type)
    job_type.options = replace(options, meta={"task": note})
    return job_type


# Checking the same options again and again was a third of what an enqueue costs in Python.
@functools.lru_cache(maxsize=1_000)
def _plain(task_type: TaskType, queue: str, priority: int, alias: str, positional: int) -> TaskType:
    task = framework.unvalidated(task_type.task, queue_name=queue, priority=priority)
    return _with(task_type, _options(task_type.options, task), _note(task, alias, positional))
