"""Settings of a process with the code of the later release."""

from __future__ import annotations

from typing import Any

from django.db.models.signals import class_prepared

from tests.next_release import MIGRATIONS
from tests.next_release.additions import COLUMNS, index
from tests.settings_worker import *  # noqa: F403

MIGRATION_MODULES = MIGRATIONS


def add(sender: Any, **_kwargs: object) -> None:
    """Give the models their new columns before any code reads what columns they have."""
    if sender._meta.app_label != "django_pgjobs":
        return
    columns = COLUMNS.get(sender.__name__, {})
    for name, field in columns.items():
        sender.add_to_class(name, field())
    if hasattr(sender, "added"):
        sender.added = tuple(columns)
    if sender.__name__ == "Job":
        sender._meta.indexes.append(index())


class_prepared.connect(add)
