"""Find the task that a row names by its module path, where no module has declared it yet.

Invariant: nothing outside the installed apps is imported because a row says so, and what is found there
is a task or nothing.
"""

from __future__ import annotations

import logging
from importlib import import_module

from django.apps import apps

from django_pgjobs import registry
from django_pgjobs.exceptions import UnknownKind
from django_pgjobs.tasks import framework, task_types

logger = logging.getLogger(__name__)


def find(kind: str) -> task_types.TaskType | None:
    """Return the task of this module path, or None.

    Raises:
        UnknownKind: its module is there and cannot be imported; the message says why.

    """
    module, _, name = kind.rpartition(".")
    if not name or not _may_be_imported(module):
        return None
    try:
        task = getattr(import_module(module), name, None)
        return task_types.of(task) if isinstance(task, framework.Task) else _declared(kind)
    # A module's own code may do anything: only this job fails by it.
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module}.".startswith(f"{missing}."):
            return _declared(kind)
        logger.exception("The module of the kind %r cannot be imported.", kind)
        raise UnknownKind(
            f"The module of the kind {kind!r:.300} must be importable, got "
            f"{type(error).__name__}: {error!s:.300}. Mend it, or install what it lacks."
        ) from error


def _declared(kind: str) -> task_types.TaskType | None:
    """Return the task of a class, or that of an earlier name, which an import just now has declared."""
    known = registry.find(kind, ask=False)
    return known if isinstance(known, task_types.TaskType) else None


def _may_be_imported(module: str) -> bool:
    """Say whether it is a module of an installed app, and none that is made to be run."""
    if "__main__" in module.split("."):
        return False
    return any(
        module == app.name or module.startswith(f"{app.name}.") for app in apps.get_app_configs()
    )
