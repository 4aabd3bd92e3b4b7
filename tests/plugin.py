"""The pytest plugin that gives the test run its server, before Django's settings are read.

It is loaded by `-p` and not from conftest.py, because pytest-django reads the settings earlier than that.
With xdist the controller starts the server and the workers find its URL in their environment.
"""

from __future__ import annotations

import atexit
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

URL_VARIABLE = "PGJOBS_TEST_URL"
NO_RUN = {"-h", "--help", "-V", "--version", "--co", "--collect-only", "--fixtures", "--markers"}

described = pytest.StashKey[str]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> Generator[None]:
    """Start the server, unless nothing will run or another process of this run has done so."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes start: a fifth faster
    if URL_VARIABLE not in os.environ and NO_RUN.isdisjoint(args):
        from tests.databases import take_server  # noqa: PLC0415  workers need none of it

        stack = ExitStack()
        atexit.register(stack.close)  # also after Ctrl-C and errors in configuration
        server = take_server(stack)
        os.environ[URL_VARIABLE] = server.url
        early_config.stash[described] = server.description
    return (yield)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which server the run uses."""
    description = config.stash.get(described, None)
    return f"database: {description}" if description else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest test, so that not one process is left with it while the other has nothing."""
    items.sort(key=lambda item: "test_benchmarks" not in item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep what a test logged in a form that xdist can send: some log lone surrogates."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report
