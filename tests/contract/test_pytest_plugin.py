"""The pytest plugin, as projects meet it: found by its entry point, and in nobody's way."""

from __future__ import annotations

import tomllib
from importlib import import_module

import pytest

from tests.contract import pages
from tests.contract.projects import TUTORIAL, new_project

PLUGIN = "django_pgjobs.pytest_plugin"
PAGE = "docs/how-to/test-your-jobs.md"


@pytest.fixture
def project(tmp_path, monkeypatch):
    # As if this package was installed, whether it is or not.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    with new_project(tmp_path) as project:
        project.write("pytest.ini", "[pytest]\naddopts = --strict-config\nfilterwarnings = error\n")
        yield project


def run(project, *arguments, status=0):
    return project.python("-m", "pytest", "-p", PLUGIN, *arguments, status=status)


def test_pytest_finds_it_by_its_entry_point():
    declared = tomllib.loads(pages.text("pyproject.toml"))["project"]["entry-points"]["pytest11"]

    assert declared == {"django_pgjobs": PLUGIN}
    assert import_module(PLUGIN).pgjobs_drain


def test_a_project_without_django_does_not_notice_it(project):
    project.write(
        "test_plain.py",
        "import sys\n"
        "def test_plain():\n"
        "    assert not [name for name in sys.modules if name.partition('.')[0] == 'django']\n",
    )

    assert "1 passed" in run(project)


def test_its_fixtures_are_listed_with_what_they_are_for(project):
    listed = run(project, "--fixtures", "-q")

    for name in ("pgjobs_drain", "pgjobs_immediate"):
        assert name in listed
        assert f"`{name}`" in pages.text(PAGE)


def test_without_pytest_django_a_test_that_asks_for_one_is_told_what_is_missing(project):
    project.write("test_drain.py", "def test_drain(pgjobs_drain): ...\n")

    assert "fixture 'db' not found" in run(project, status=1)


TRANSACTIONAL = """
from django.db import connection
from django_pgjobs import Job, enqueue


def test_jobs_are_committed(transactional_db, pgjobs_drain):
    enqueue("send_receipt", order_id=0)
    assert not connection.in_atomic_block
    assert pgjobs_drain().failed == 1


def test_so_they_are_at_once(transactional_db, pgjobs_immediate):
    assert enqueue("send_receipt", order_id=0)
    assert not connection.in_atomic_block
    assert Job.objects.get().attempts == 1
"""


def test_the_examples_of_the_page_pass_and_committed_jobs_run_too(project):
    project.python("-m", "django", "startproject", "mysite", ".")
    project.manage("startapp", "shop")
    project.apply(b for b in pages.blocks(TUTORIAL) if b.order.startswith(("write", "append")))
    project.manage("makemigrations", "-v0", "shop")
    project.apply(block for block in pages.blocks(PAGE) if "test_receipts" in block.order)
    project.write("shop/test_transactional.py", TRANSACTIONAL)

    said = run(project, "-p", "pytest_django.plugin", "--ds", "mysite.settings", "shop")

    assert "4 passed" in said
