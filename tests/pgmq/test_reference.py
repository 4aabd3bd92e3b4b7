"""The reference of pgmq says what the code says."""

from __future__ import annotations

import dataclasses
import inspect
import re
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import pytest

import django_pgjobs.pgmq
from django_pgjobs.pgmq import DeadLetter, DeadLetters, Message, Metrics, Queue, operations
from django_pgjobs.pgmq.consumers import consumer
from tests.contract import pages
from tests.contract.test_api_reference import signature

PAGE = "docs/reference/pgmq.md"
PACKAGE = Path(django_pgjobs.pgmq.__file__).parent
HOME = SimpleNamespace(
    **{name: getattr(django_pgjobs.pgmq, name) for name in django_pgjobs.pgmq.__all__},
    CreateQueue=operations.CreateQueue,
)


def test_the_signatures_are_the_code_s():
    headings = re.findall(r"^### `([\w.]+)(\(.*\))`$", pages.text(PAGE), re.MULTILINE)
    assert {name: given.replace('"', "'") for name, given in headings} == {
        name: signature(attrgetter(name)(HOME)) for name, _ in headings
    }


@pytest.mark.parametrize("home", [Queue, DeadLetters])
def test_every_method_is_described_or_is_a_twin(home):
    methods = {n for n, v in vars(home).items() if inspect.isfunction(v) and not n.startswith("_")}
    described = set(re.findall(rf"^### `{home.__name__}\.(\w+)\(", pages.text(PAGE), re.MULTILINE))
    assert methods == described | {f"a{name}" for name in described}


def test_every_public_name_is_described():
    for name in django_pgjobs.pgmq.__all__:
        assert re.search(rf"\b{name}\b", pages.text(PAGE)), name


@pytest.mark.parametrize("value", [Message, Metrics, DeadLetter])
def test_every_field_is_in_the_table(value):
    rows = pages.table(PAGE, value.__name__)
    assert [row[0] for row in rows] == [field.name for field in dataclasses.fields(value)]


def test_every_option_of_a_consumer_is_in_its_table_with_its_default():
    rows = pages.table("docs/how-to/pgmq.md", "Consume")
    options = {n: p.default for n, p in inspect.signature(consumer).parameters.items()}
    del options["queue"]
    assert [row[0] for row in rows] == list(options)
    assert [row[1] for row in rows[:3]] == [str(options[n]) for n in ("vt", "qty", "max_reads")]


def test_every_logger_is_in_the_table():
    modules = {
        f"django_pgjobs.pgmq.{path.stem}"
        for path in PACKAGE.glob("*.py")
        if "getLogger(__name__)" in path.read_text(encoding="utf-8")
    }
    assert {row[0] for row in pages.table(PAGE, "Loggers of pgmq")} == modules
