"""Django's own tests of its tasks, made to test this backend, and those that cannot be.

They are about two backends: one that stores, and one that runs at once. Both are this one here; the
second also works off what was enqueued, as a worker would. Like most tests they run inside a transaction.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

from django_pgjobs.models import Job
from django_pgjobs.tasks import PgJobsBackend
from django_pgjobs.testing import drain

_SUPPORTED = "it expects the backend to lack what this one has"
_MEMORY = "it changes a result in the list that the dummy backend keeps in memory"
_SYNC = "it asks synchronously in async code, which Django forbids whoever uses its ORM"
_WORKER = "a worker outlives what a task raises, so the attempt fails instead"

EXCLUDED = {
    "test_dummy_backend.DummyBackendTestCase.test_enqueue_task_async": _SYNC,
    "test_dummy_backend.DummyBackendTestCase.test_get_missing_result": _SYNC,
    "test_dummy_backend.DummyBackendTestCase.test_refresh_result": _MEMORY,
    "test_dummy_backend.DummyBackendTestCase.test_refresh_result_async": _MEMORY,
    "test_immediate_backend.ImmediateBackendTestCase.test_cannot_get_result": _SUPPORTED,
    "test_immediate_backend.ImmediateBackendTestCase.test_cannot_pass_run_after": _SUPPORTED,
    "test_immediate_backend.ImmediateBackendTestCase.test_cannot_refresh_result": _SUPPORTED,
    "test_immediate_backend.ImmediateBackendTestCase.test_throws_keyboard_interrupt": _WORKER,
    "test_tasks.TaskTestCase.test_enqueue_task_async": _SYNC,
    "test_tasks.TaskTestCase.test_get_missing_result": _SYNC,
    "test_tasks.TaskTestCase.test_refresh_result": _SYNC,
}
if sys.version_info < (3, 12):
    _WORDS = "Python says otherwise that a method is missing, of a backend that is not this one"
    EXCLUDED["test_custom_backend.CustomBackendTestCase.test_no_enqueue"] = _WORDS


class DummyBackend(PgJobsBackend):
    """Stores, and can be looked into."""

    @property
    def results(self) -> list[Any]:
        ids = Job.objects.order_by("pk").values_list("pk", flat=True)
        return [self.get_result(str(pk)) for pk in ids]

    def clear(self) -> None:
        Job.objects.all().delete()


class ImmediateBackend(PgJobsBackend):
    """Runs at once."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        drain()
        result.refresh()
        return result


_HERE = {
    r"django\.tasks\.backends\.(dummy|immediate)": __name__,
    r"\b(Simple|Transaction)TestCase\b": "TestCase",  # a database is used, and nothing of it is left
    r"available_apps = \[\]": "available_apps = None",
}
_BACKPORT = {
    r"django\.tasks": "django_tasks",
    "support async Tasks": "support async tasks",
    r"\bInvalidTask\b": "InvalidTaskError",
    r"\bInvalidTaskBackend\b": "InvalidTaskBackendError",
}


def adapt(suite: Path, folder: Path, *, backport: bool) -> None:
    """Copy the tests into `folder`, with other names in them."""
    shutil.copytree(suite, folder)
    for file in folder.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        for old, new in (_HERE | (_BACKPORT if backport else {})).items():
            text = re.sub(old, new, text)
        file.write_text(text, encoding="utf-8")
