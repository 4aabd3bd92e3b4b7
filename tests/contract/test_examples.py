"""Code in the documentation runs: a page is followed step by step in a new project."""

from __future__ import annotations

from importlib.util import find_spec

import django
import pytest

from tests.contract import pages
from tests.contract.projects import TUTORIAL, new_project

pytestmark = pytest.mark.newest

TASKS = "docs/how-to/django-tasks.md"
RUN_APART = {TUTORIAL, TASKS, "README.md"}
if find_spec("pgmq") is None:
    RUN_APART.add("docs/how-to/pgmq.md")
PAGES = [
    name
    for name in pages.NAMES
    if name not in RUN_APART and any(b.language in pages.RUNNABLE for b in pages.blocks(name))
]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The project of the tutorial, which the other pages' examples are about."""
    with new_project(tmp_path_factory.mktemp("shop")) as project:
        project.python("-m", "django", "startproject", "mysite", ".")
        project.manage("startapp", "shop")
        project.apply(b for b in pages.blocks(TUTORIAL) if b.order.startswith(("write", "append")))
        project.manage("makemigrations", "-v0", "shop")
        project.manage("migrate", "-v0")
        yield project


@pytest.mark.parametrize("name", PAGES)
def test_the_examples_of_a_page_run_from_top_to_bottom(shop, name):
    shop.flush()
    shop.apply(pages.blocks(name))


def test_the_tutorial_does_what_it_says(tmp_path):
    with new_project(tmp_path) as project:
        project.apply(pages.blocks(TUTORIAL))
    sent = "".join(path.read_text() for path in (tmp_path / "sent").iterdir())
    assert [f"To: {name}@example.com" in sent for name in ("ada", "bob", "cleo")] == [True] * 3
    assert "eve@example.com" not in sent


@pytest.mark.skipif(django.VERSION < (6, 1), reason="The page is about Django 6.1.")
def test_a_new_project_needs_nothing_but_djangos_tasks(tmp_path):
    with new_project(tmp_path) as project:
        project.apply(pages.blocks(TASKS))


@pytest.mark.parametrize("name", pages.NAMES)
def test_python_in_the_documentation_compiles(name):
    for block in pages.blocks(name):
        if block.language == "python":
            compile(block.code, str(block), "exec", dont_inherit=True)
