"""The names that programs rely on, and that importing them needs nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import django_pgjobs
from django_pgjobs import exceptions

# Written out: a name that goes missing is a change that breaks programs.
NAMES = {
    "job",
    "pause",
    "resume",
    "enqueue",
    "aenqueue",
    "cron",
    "every",
    "get_job",
    "Job",
    "JobType",
    "Limit",
    "Rate",
    "PgJobsError",
    "UnknownKind",
    "InvalidPayload",
    "InvalidOption",
    "DuplicateKind",
    "Retry",
    "Snooze",
    "Discard",
    "Exponential",
    "Linear",
    "Fixed",
    "PgJobsWarning",
    "Unique",
    "DuplicateJob",
    "ForeignTransaction",
    "JobCancelled",
    "JobContext",
    "WaitInTransaction",
    "WaitTimeout",
}
WITHOUT_SETTINGS = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**WITHOUT_SETTINGS, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_name_can_be_imported(name):
    assert getattr(django_pgjobs, name).__name__ == name


def test_the_public_names_are_these_and_no_others():
    assert set(django_pgjobs.__all__) == NAMES
    assert set(dir(django_pgjobs)) > NAMES


def test_another_name_is_an_ordinary_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = django_pgjobs.nonsense


def test_all_but_the_model_can_be_imported_before_the_apps_are_loaded():
    done = run(
        f"from django_pgjobs import {', '.join(NAMES - {'Job'})}\n"
        "from django.apps import apps\n"
        "from django.conf import settings\n"
        "assert not apps.ready and not settings.configured"
    )

    assert done.returncode == 0, done.stderr


def test_a_job_can_be_declared_before_the_apps_are_loaded_and_enqueued_after():
    done = run(
        "from django_pgjobs import job, get_job\n"
        "@job(queue='mail')\n"
        "def early(a): return a\n"
        "assert early(5) == 5\n"
        "import django; django.setup()\n"
        "assert get_job('early') is early\n"
        "from tests.app.jobs import noop\n"
        "assert get_job('noop') is noop",
        DJANGO_SETTINGS_MODULE="tests.settings",
    )

    assert done.returncode == 0, done.stderr


def test_the_model_asks_for_the_apps_as_any_model_does():
    done = run("from django_pgjobs import Job")

    assert done.returncode == 1
    assert "ImproperlyConfigured" in done.stderr


def test_every_exception_and_warning_is_in_one_of_two_trees():
    own = [c for c in vars(exceptions).values() if isinstance(c, type) and "pgjobs" in c.__module__]
    classes = [c for c in own if c is not exceptions.Interrupted]  # no error: raised into a handler

    assert len(classes) >= 8
    assert all(issubclass(c, exceptions.PgJobsError | exceptions.PgJobsWarning) for c in classes)
    assert {c.__name__ for c in classes} >= {n for n in NAMES if n.endswith(("Kind", "Error"))}


APP = {
    "__init__.py": "",
    "raises": "raise ValueError('from jobs.py')",
    "exits": "import sys; sys.exit(0)",
    "misses": "import a_module_that_is_not_there",
}


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        (APP["raises"], "from jobs.py"),
        (APP["exits"], "broken_app.jobs"),
        (APP["misses"], "a_module_that_is_not_there"),
    ],
    ids=["raises", "exits", "misses"],
)
def test_jobs_py_that_cannot_be_imported_stops_the_start_and_is_named(tmp_path, jobs, said):
    (tmp_path / "broken_app").mkdir()
    (tmp_path / "broken_app" / "__init__.py").write_text("")
    (tmp_path / "broken_app" / "jobs.py").write_text(jobs)

    done = run(
        "import django\n"
        "from django.conf import settings\n"
        "settings.configure(INSTALLED_APPS=['django_pgjobs', 'broken_app'])\n"
        "django.setup()",
        PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]),
    )

    assert done.returncode == 1
    assert said in done.stderr
    assert "jobs.py" in done.stderr
