"""Run the adapted tests that are on the path as `tasks`; print what became of each, as JSON.

A process of its own: it has other settings, and modules with names that are in use.
"""

from __future__ import annotations

import json
import sys
import unittest
from typing import Any

import django
from django.conf import settings
from django.test.runner import DiscoverRunner

from tests import settings as base


class _Result(unittest.TextTestResult):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.outcomes: dict[str, str] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self.outcomes.setdefault(test.id(), "")

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802
        self.outcomes[test.id()] = self._exc_info_to_string(err, test)

    addFailure = addError  # noqa: N815

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
        if err is not None:
            self.addError(test, err)


def main(backport: bool) -> None:  # noqa: FBT001
    """Run them all on a database of their own."""
    apps = ["django.contrib.auth", "django.contrib.contenttypes", "django_pgjobs"]
    settings.configure(
        SECRET_KEY="of the tests",  # noqa: S106
        USE_TZ=True,
        DATABASES={"default": base.DATABASES["default"]},
        INSTALLED_APPS=[*(["django_tasks"] if backport else []), *apps, "tasks"],
        PGJOBS={"MAX_ATTEMPTS": 1, "NOTIFY": False},
        TASKS={"default": {"BACKEND": "tests.tasks.adapter.ImmediateBackend", "QUEUES": []}},
    )
    django.setup()
    runner = DiscoverRunner(verbosity=0, interactive=False)
    suite = runner.build_suite(["tasks"])
    databases = runner.setup_databases()
    with open("/dev/null", "w") as nowhere:  # noqa: PTH123
        text_runner = unittest.TextTestRunner(nowhere, resultclass=_Result)
        result = text_runner.run(suite)
    runner.teardown_databases(databases)
    print(json.dumps(result.outcomes))  # noqa: T201


if __name__ == "__main__":
    main("--backport" in sys.argv)
