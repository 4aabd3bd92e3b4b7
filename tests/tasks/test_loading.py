"""Tasks are declared, and backends made, before the apps are loaded or where this one is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = """
import django
from django.conf import settings
BACKEND = "django_pgjobs.tasks.PgJobsBackend"
settings.configure(INSTALLED_APPS={apps!r}, TASKS={{"default": {{"BACKEND": BACKEND}}}}, DATABASES={{}})
"""
EARLY = """
from django_pgjobs.tasks import framework, task
assert type(framework.task_backends["default"]).__name__ == "PgJobsBackend"
@task(max_attempts=3)
def early(a): ...
@task(takes_context=True)
async def early_with_context(context): ...
"""


@pytest.fixture
def run(tmp_path):
    """Run code in a fresh process, and return what it said."""

    def run(code, apps=("django_pgjobs",)):
        ended = subprocess.run(
            [sys.executable, "-c", SETTINGS.format(apps=[*apps]) + code],
            env={**os.environ, "PYTHONPATH": f"{Path(__file__).parents[2]}:{tmp_path}"},
            capture_output=True,
            text=True,
            check=False,
        )
        return ended.stdout + ended.stderr

    return run


def test_a_backend_and_tasks_need_no_models(run):
    said = run(f"{EARLY}\nassert not django.apps.apps.ready; django.setup(); print('well')")
    assert said == "well\n"


def test_a_package_of_an_app_may_declare_tasks(run, tmp_path):
    (tmp_path / "pgjobs_early.py").write_text(EARLY)
    said = run("django.setup(); print('well')", apps=["pgjobs_early", "django_pgjobs"])
    assert said == "well\n"


def test_check_names_the_missing_app(run):
    check = "django.setup(); from django.core.management import call_command; call_command('check')"
    said = run(EARLY + check, apps=[])
    assert "pgjobs.E020" in said


LATE = """
django.setup()
from django.core.exceptions import ImproperlyConfigured
def said_by(call, *args):
    try:
        call(*args)
    except ImproperlyConfigured as error:
        assert "Add it" in str(error) and "INSTALLED_APPS" in str(error), error
        print("refused")
"""


def test_a_task_that_is_declared_late_names_the_missing_app(run):
    late = """
from django_pgjobs.tasks import task
def late(a): ...
said_by(task, late)
"""
    assert run(LATE + late, apps=[]) == "refused\n"


def test_an_enqueue_and_a_result_name_the_missing_app(run):
    calls = """
said_by(early.enqueue, 1)
said_by(early.get_result, "1")
"""
    assert run(EARLY + LATE + calls, apps=[]) == "refused\nrefused\n"
