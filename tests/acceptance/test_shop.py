"""The example project, used as a newcomer uses it: through its manage.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def manage(database_url):
    """Run a command of the example's manage.py and return its output."""

    def run(*command):
        environment = {**os.environ, "DATABASE_URL": database_url}
        environment.pop("DJANGO_SETTINGS_MODULE")
        done = subprocess.run(
            [sys.executable, "example_project/manage.py", *command],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


def test_its_own_tests_pass(manage):
    output = manage("test", "example_project.shop", "--noinput")
    assert "Ran 35 tests" in output


def test_it_is_configured_without_a_warning(manage):
    assert "no issues" in manage("check", "--fail-level=WARNING", "--database=default")


def test_its_models_have_their_migrations(manage):
    manage("makemigrations", "--check", "--dry-run", "shop")
