"""A later release, as far as its tables go: columns with defaults, an index, a constraint.

Its code runs as a process with `tests.next_release.settings`, or its migrations are applied to the tables of this
release's code with `migrated()`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.core.management import call_command
from django.test import override_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

MIGRATIONS = {"django_pgjobs": "tests.next_release.migrations"}
FIRST, LAST = "0002_functions", "0008_without_locks"
SETTINGS = "tests.next_release.settings"


def migrate(target: str = LAST) -> None:
    with override_settings(MIGRATION_MODULES=MIGRATIONS):
        call_command("migrate", "django_pgjobs", target, verbosity=0)


@contextmanager
def migrated() -> Iterator[None]:
    """The tables of the later release; at the end they are this one's again."""
    migrate()
    try:
        yield
    finally:
        migrate(FIRST)
