"""The tests that Django has of its own tasks pass with this backend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import django
import pytest

from tests.contract.pages import ROOT
from tests.tasks import adapter, sources

BACKPORT = django.VERSION < (6, 0)
# The backport has no tests in its source distribution: it is held against Django's, under its own names.
VERSION = "6.0.10" if BACKPORT else django.get_version()


@cache
def outcomes(folder):
    """What became of each test: nothing, or its traceback."""
    suite = sources.fetch("django", VERSION) / "tests" / "tasks"
    adapter.adapt(suite, folder / "tasks", backport=BACKPORT)
    environment = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    run = subprocess.run(
        [sys.executable, "-m", "tests.tasks.run_suite", *(["--backport"] if BACKPORT else [])],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    return {name.removeprefix("tasks."): outcome for name, outcome in found.items()}


@pytest.mark.timeout(600)
def test_djangos_own_tests_of_tasks_pass(tmp_path):
    found = outcomes(tmp_path)

    failed = {name: outcome for name, outcome in found.items() if outcome}
    unexpected = {name: text for name, text in failed.items() if name not in adapter.EXCLUDED}
    assert not unexpected, "\n".join([*unexpected, *unexpected.values()])
    assert set(failed) == set(adapter.EXCLUDED), "what passes is no exception"
    assert len(found) > 75  # they have been found
