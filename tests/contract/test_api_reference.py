"""The reference of the API says what the code says: names, signatures, options, exceptions."""

from __future__ import annotations

import inspect
import re
from operator import attrgetter
from pathlib import Path
from typing import get_overloads

import django_pgjobs
from django_pgjobs import exceptions, models, testing
from django_pgjobs.job_types import JobType
from django_pgjobs.models import JobQuerySet
from django_pgjobs.options import Changes
from tests.contract import pages

API = "docs/reference/api.md"
PACKAGE = Path(django_pgjobs.__file__).parent


def test_the_signatures_are_the_code_s():
    headings = re.findall(r"^### `([\w.]+)(\(.*\))`$", pages.text(API), re.MULTILINE)
    assert len(headings) > 10
    assert {name: given.replace('"', "'") for name, given in headings} == {
        name: signature(named(name)) for name, _ in headings
    }


def named(name):
    """The object that a heading is about."""
    home, rest = django_pgjobs, name
    for module in (testing, models):
        first = rest.removeprefix(f"{module.__name__}.").partition(".")[0]
        if hasattr(module, first):
            home, rest = module, rest.removeprefix(f"{module.__name__}.")
    target = attrgetter(rest)(home)
    overloads = get_overloads(target)
    return overloads[-1] if overloads else target


def signature(target):
    whole = inspect.signature(target)
    plain = [p.replace(annotation=p.empty) for p in whole.parameters.values() if p.name != "self"]
    return str(whole.replace(parameters=plain, return_annotation=whole.empty))


def test_every_public_name_is_described():
    for name in django_pgjobs.__all__:
        assert re.search(rf"\b{name}\b", pages.text(API)), name
    for home in (JobType, JobQuerySet):
        for name in vars(home):
            if inspect.isfunction(vars(home)[name]) and not name.startswith("_"):
                assert f".{name}(" in pages.text(API), name


def test_the_options_of_a_job_are_in_the_tables():
    heading = re.search(r"^### (`job\(.*)$", pages.text(API), re.MULTILINE)[1]
    rows = pages.table(API, heading)
    assert [row[0] for row in rows] == list(inspect.signature(named("job")).parameters)
    changes = ", ".join(row[0] for row in pages.table(API, "`JobType.using(**changes)`"))
    assert sorted(changes.split(", ")) == sorted(Changes.__annotations__)


def test_the_tree_of_exceptions_is_the_code_s():
    tree = inspect.cleandoc(exceptions.__doc__).split("\n\n", 1)[1].rpartition("\n\n")[0]
    [drawn] = [
        b.code for b in pages.blocks(API) if "PgJobsError" in b.code and b.language == "text"
    ]
    assert drawn.strip() == inspect.cleandoc(tree)


def test_every_logger_is_in_the_table():
    modules = {
        f"django_pgjobs.{path.stem}"
        for path in PACKAGE.glob("*.py")
        if "getLogger(__name__)" in path.read_text(encoding="utf-8")
    }
    assert {row[0] for row in pages.table(API, "Loggers")} == modules
