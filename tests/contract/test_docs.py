"""The documentation as a whole: its links, its command lines, its size."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from django.core.management import load_command_class

from tests.contract import pages

pytestmark = pytest.mark.newest

_COMMAND = re.compile(r"manage\.py (runjobs|reapjobs|pgjobs|pgmq)([^`\n>]*)")


@pytest.mark.parametrize("name", pages.NAMES)
def test_relative_links_lead_somewhere(name):
    for link in pages.links(name):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (pages.ROOT / name).parent / target if target else pages.ROOT / name
        assert path.is_file(), f"{name}: {link} must lead to a file."
        if anchor:
            there = str(path.resolve().relative_to(pages.ROOT))
            assert anchor in pages.anchors(there), f"{name}: {link} must lead to a heading."


@pytest.mark.parametrize("name", pages.NAMES)
def test_command_lines_are_ones_that_the_commands_take(name):
    for command, arguments in _COMMAND.findall(pages.text(name)):
        app = "django_pgjobs.pgmq" if command == "pgmq" else "django_pgjobs"
        parser = load_command_class(app, command).create_parser("manage.py", command)
        parser.parse_args(shlex.split(arguments))


def test_every_page_is_reached_from_the_index():
    index = pages.text("docs/index.md")
    listed = set(re.findall(r"^(?:[a-z-]+/)+[a-z-]+$", index, re.MULTILINE))
    there = {name.removeprefix("docs/").removesuffix(".md") for name in pages.NAMES if "/" in name}
    assert listed == {name for name in there if "decisions/0" not in name} - {"index"}


def test_every_picture_is_shown_and_told_in_words():
    shown = {
        (pages.ROOT / name).parent.joinpath(path).resolve(): words
        for name in pages.NAMES
        for words, path in re.findall(r"!\[([^]]*)\]\(([^)]+)\)", pages.text(name))
    }
    assert set(shown) == {path.resolve() for path in (pages.DOCS / "images").iterdir()}
    assert all(len(words) > 20 for words in shown.values())


def test_decisions_are_numbered_one_after_the_other():
    numbers = sorted(p.name[:4] for p in (pages.DOCS / "explanation/decisions").glob("0*.md"))
    assert numbers == [f"{n:04}" for n in range(1, len(numbers) + 1)]


@pytest.mark.parametrize("name", [n for n in pages.NAMES if "decisions/0" in n])
def test_a_decision_says_context_decision_and_consequences(name):
    assert re.match(r"# \d{4}: ", pages.text(name))
    assert re.findall(r"^\*\*(\w+)\.\*\*", pages.text(name), re.MULTILINE) == [
        "Context",
        "Decision",
        "Consequences",
    ]
    assert pages.text(name).startswith(f"# {Path(name).name[:4]}:")
