"""The pages of the documentation, as the tests see them: code blocks, tables, links.

A comment directly above a code block says what the tests do with it; a reader never sees it:

    <!-- test: write shop/jobs.py -->     the block is that file of a new project
    <!-- test: append shop/jobs.py -->    it is added to the file
    <!-- test: run -->                    each of its lines is a command
    <!-- test: shell -->                  it is given to `manage.py shell`
    <!-- test: output -->                 the step before printed exactly this; `...` stands for anything
    <!-- test: skip -->                   nothing: it would need what a test has not

Without one, Python and SQL run as parts of one script per page, other languages not at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FILES = sorted(
    [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
    + [path for path in DOCS.rglob("*.md") if "_build" not in path.parts]
)
NAMES = [str(path.relative_to(ROOT)) for path in FILES]

RUNNABLE = {"python", "sql", "postgresql"}

_BLOCK = re.compile(
    r"^(?:[ ]*<!-- test: (?P<order>[^\n]+?) -->\n)?"
    r"(?P<indent>[ ]*)(?P<fence>`{3,})(?P<language>[^\s`]*)[^\n]*\n"
    r"(?P<code>.*?)^(?P=indent)(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced code block."""

    page: str
    line: int  # of its first line of code
    language: str
    code: str
    order: str  # what the comment above it says, "" without one

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def blocks(name: str) -> list[Block]:
    page = text(name)
    return [
        Block(
            name,
            page.count("\n", 0, found.start("code")) + 1,
            found["language"],
            dedent(found["code"]),
            found["order"] or "",
        )
        for found in _BLOCK.finditer(page)
    ]


def links(name: str) -> list[str]:
    """The targets of all links outside code blocks."""
    return _LINK.findall(_BLOCK.sub("", text(name)))


def table(name: str, heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, header and rule left out, backticks removed."""
    part = section(name, heading)
    rows = [line for line in part.splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", row.strip()[1:-1]) for row in rows[2:]]
    return [[cell.strip().replace("`", "").replace("\\|", "|") for cell in row] for row in cells]


def section(name: str, heading: str) -> str:
    """The text from a heading to the next one of any level."""
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text(name), re.MULTILINE | re.DOTALL
    )
    assert found, f"{name} must have a heading {heading!r}."
    return found[1]


def anchors(name: str) -> set[str]:
    """The anchors of the headings, as MyST and GitHub make them."""
    headings = re.findall(r"^#+ (.+)$", _BLOCK.sub("", text(name)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
