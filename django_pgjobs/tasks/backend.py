"""The backend: `enqueue()` is one INSERT in the caller's transaction, a result is the row.

Invariant: a backend holds its alias and its settings only, so nothing is shared between threads and none
needs the models; what is refused was refused before any SQL.
"""

from __future__ import annotations

import datetime
import difflib
import functools
import re
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from types import ModuleType
from typing import Any

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 -- its name in Django
from django.db import transaction

from django_pgjobs import registry
from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.options import check_delay, check_kind, check_queue, check_run_at
from django_pgjobs.tasks import framework, signals, task_types
from django_pgjobs.tasks.declaring import PgJobsTask
from django_pgjobs.tasks.framework import InvalidTask, TaskResultDoesNotExist

_ID = re.compile(r"[1-9][0-9]{0,18}")
_SETTINGS = {"BACKEND", "QUEUES", "OPTIONS"}  # what the framework reads
_MOST = 2**63 - 1  # an id, as the column


class PgJobsBackend(framework.BaseTaskBackend):
    """Runs the framework's tasks as jobs of this app."""

    task_class = PgJobsTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """Keep the settings of `alias`; what is wrong is left to `check()`, for tasks are declared before."""
        self._wrong_queues = [] if _are_names(params.get("QUEUES", [])) else [params["QUEUES"]]
        self._unknown = sorted(map(str, params.keys() - _SETTINGS))
        super().__init__(alias, {**params, "QUEUES": []} if self._wrong_queues else params)

    def validate_task(self, task: Any) -> None:
        """Refuse what cannot be stored or run; `run_after` may be a timedelta, from the enqueue on.

        Raises:
            InvalidTask: naming what is wrong.

        """
        at = isinstance(task.run_after, datetime.datetime | None)
        super().validate_task(task if at else framework.unvalidated(task, run_after=None))
        try:
            _check_names(task.module_path, task.queue_name)
            if isinstance(task.run_after, datetime.timedelta):
                check_delay(task.run_after, "run_after")
            elif isinstance(task.run_after, datetime.datetime):
                check_run_at(task.run_after, "run_after")
            elif task.run_after is not None:
                raise InvalidOption(
                    f"run_after must be a datetime or a timedelta, got {task.run_after!r:.80}. Pass one, or "
                    "leave it out for now."
                )
        except InvalidOption as error:
            raise InvalidTask(str(error)) from error

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Insert a pending job in the current transaction, and return its result.

        Raises:
            InvalidTask: the task, or an option of it, is not valid.
            TypeError: an argument is not JSON.
            InvalidPayload: the arguments do not fit the function or cannot be stored.
            DuplicateJob: the task's rule of uniqueness says so.
            ImproperlyConfigured: this app is not installed.

        """
        results = _results()
        self.validate_task(task)
        task_type = task_types.of(task)
        args, kwargs = task_types.as_json(task, args), task_types.as_json(task, kwargs)
        # One INSERT needs no transaction; what a receiver may refuse does.
        heard = signals.enqueued_is_heard()
        with transaction.atomic(using=results.database()) if heard else nullcontext():
            try:
                job = task_type.place(task, self.alias, args, kwargs)
            except InvalidOption as error:
                raise InvalidTask(str(error)) from error
            if job.existed:
                return results.of(task_type, job)
            result = results.new(task, job, self.alias, args, kwargs)
            signals.enqueued(type(self), result)
        return result

    def get_result(self, result_id: Any) -> Any:
        """Return the result of a task of any backend of this app.

        Raises:
            TaskResultDoesNotExist: there is no such job, or it is not that of a task.
            ImproperlyConfigured: this app is not installed.

        """
        results = _results()
        job = results.row(int(result_id)) if _is_id(result_id) else None
        task_type = None if job is None else registry.find(job.kind)
        if job is None or not isinstance(task_type, task_types.TaskType):
            raise TaskResultDoesNotExist(result_id)
        return results.of(task_type, job)

    def check(self, **_kwargs: Any) -> list[CheckMessage]:
        """Report what is wrong with this backend's settings: pgjobs.E020 to E022 and W020."""
        return list(self._faults())

    def _faults(self) -> Iterator[CheckMessage]:
        where = f"TASKS[{self.alias!r}]"
        if not task_types.is_installed():
            yield Error(
                f"'django_pgjobs' must be in INSTALLED_APPS for {where}, got an app that is not.",
                hint="Add it there, and run manage.py migrate.",
                id="pgjobs.E020",
            )
        if self.options:
            yield Error(
                f"{where}['OPTIONS'] must be empty, got {self.options!r:.80}.",
                hint="Options of the queue stand in PGJOBS; those of one task are given to @task.",
                id="pgjobs.E021",
            )
        yield from self._faults_of_queues(where)
        for name in self._unknown:
            near = difflib.get_close_matches(name.upper(), _SETTINGS, n=1)
            hint = f"Did you mean {near[0]}?" if near else "Options of the queue stand in PGJOBS."
            yield Warning(
                f"{where} must have no other keys than {', '.join(sorted(_SETTINGS))}, got {name!r:.80}.",
                hint=hint,
                id="pgjobs.W020",
            )

    def _faults_of_queues(self, where: str) -> Iterator[CheckMessage]:
        for queues in self._wrong_queues:
            yield Error(
                f"{where}['QUEUES'] must be a list of names, got {queues!r:.80}.",
                hint="[] allows every queue.",
                id="pgjobs.E022",
            )
        for queue in sorted(self.queues):
            try:
                check_queue(queue)
            except InvalidOption as error:
                yield Error(
                    f"{where}['QUEUES'] must name queues, got {queue!r:.80}.",
                    hint=str(error),
                    id="pgjobs.E022",
                )


class LostBackend(PgJobsBackend):
    """That of an alias which the settings have lost: it finds results, and takes no task."""

    def validate_task(self, task: Any) -> None:  # noqa: ARG002 -- as that of any backend
        """Raise `InvalidTaskBackend`, as the framework does."""
        framework.task_backends[self.alias]


@functools.cache
def _results() -> ModuleType:
    """Return what reads the rows: there are no models before the apps are loaded, or without this one."""
    task_types.demand_app()
    from django_pgjobs.tasks import results  # noqa: PLC0415

    return results


@functools.lru_cache(maxsize=1_000)
def _check_names(module_path: str, queue: str) -> None:
    check_kind(module_path)
    check_queue(queue)


def _are_names(queues: object) -> bool:
    return (
        isinstance(queues, Collection)
        and not isinstance(queues, str)
        and all(isinstance(queue, str) for queue in queues)
    )


def _is_id(text: object) -> bool:
    """Say whether this is the id of a result as `enqueue()` gives it."""
    if not isinstance(text, str) or not _ID.fullmatch(text):
        return False
    return int(text) <= _MOST
