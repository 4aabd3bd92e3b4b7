"""A new Django project in an empty folder, with a database of its own: what a reader starts with."""

from __future__ import annotations

import doctest
import json
import os
import secrets
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from example_project.database_url import database_from_url
from tests.contract import pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.contract.pages import Block

TUTORIAL = "docs/tutorial/first-job.md"
SETTINGS = Path("mysite/settings.py")
_SCRIPT = Path(__file__).with_name("run_blocks.py")
_CHECKER = doctest.OutputChecker()
_TABLES = """select string_agg(format('%I', tablename), ', ') from pg_tables where schemaname = 'public'
    and tablename not in ('django_migrations', 'django_content_type', 'auth_permission')"""
_MARK = "\n# Where this reader's PostgreSQL is\n"


class Project:
    """A folder that commands are run in."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self._url = url
        self._database = f'{_MARK}DATABASES = {{"default": {database_from_url(url)!r}}}\n'
        outer = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
        paths = [str(folder), str(pages.ROOT)]
        self._environment = {**outer, "PYTHONPATH": os.pathsep.join(paths), "NO_COLOR": "1"}

    def write(self, name: str | Path, code: str, *, append: bool = False) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8").partition(_MARK)[0] if append else ""
        text = f"{text}\n{code}" if text else code
        if Path(name) == SETTINGS:
            text += self._database
        path.write_text(text, encoding="utf-8")

    def python(self, *arguments: str, status: int = 0) -> str:
        """Run Python in the folder, and return what it printed; it must exit with `status`."""
        process = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert process.returncode == status, f"{arguments} failed:\n{process.stdout}"
        return process.stdout

    def manage(self, *arguments: str) -> str:
        return self.python("manage.py", *arguments)

    def flush(self) -> None:
        """Empty the tables, as `manage.py flush` does, without a process that starts for it."""
        with psycopg.connect(self._url) as connection:
            [tables] = connection.execute(_TABLES).fetchone()
            connection.execute(f"truncate {tables} restart identity cascade")

    def command(self, line: str) -> str:
        """Run a command line of a page."""
        program, *arguments = shlex.split(line, comments=True)
        if program == "django-admin":
            return self.python("-m", "django", *arguments)
        assert program == "python", f"A page must run python or django-admin, got {line!r}."
        return self.python(*arguments)

    def apply(self, blocks: Iterable[Block]) -> None:
        """Do what the comments above the blocks say, in order."""
        printed, script = "", []
        for block in blocks:
            if block.order not in ("", "skip"):
                printed = self._step(block, self._run(script) or printed)
                script = []
            elif not block.order and block.language in pages.RUNNABLE:
                script.append([block.language, block.page, block.line, block.code])
        self._run(script)

    def _run(self, script: list[list[Any]]) -> str:
        return self.python(str(_SCRIPT), json.dumps(script)) if script else ""

    def _step(self, block: Block, printed: str) -> str:
        order, _, name = block.order.partition(" ")
        match order:
            case "write" | "append":
                self.write(name, block.code, append=order == "append")
            case "run":
                lines = [line for line in block.code.splitlines() if line]
                return "".join(map(self.command, lines))
            case "shell":
                return self.manage("shell", "--no-imports", "-c", block.code)
            case "output":
                same = _CHECKER.check_output(block.code, printed, doctest.ELLIPSIS)
                assert same, f"{block} must be what is printed, got:\n{printed}"
            case _:
                raise AssertionError(f"{block} has an unknown order, {block.order!r}.")
        return printed


@contextmanager
def new_project(folder: Path) -> Iterator[Project]:
    """Give an empty folder a database on the tests' server, and drop it afterwards."""
    server = os.environ["PGJOBS_TEST_URL"]
    name = f"pgjobs_docs_{secrets.token_hex(4)}"
    _on_server(server, "create database {}", name)
    try:
        yield Project(folder, urlsplit(server)._replace(path=f"/{name}").geturl())
    finally:
        _on_server(server, "drop database {} with (force)", name)


def _on_server(url: str, statement: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
