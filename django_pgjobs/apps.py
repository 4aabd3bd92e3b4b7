"""The Django app: registers the checks and imports `jobs.py` and `tasks.py` of every installed app."""

from __future__ import annotations

import traceback

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from django_pgjobs import checks, registry


class PgJobsConfig(AppConfig):
    """The app config of django_pgjobs."""

    name = "django_pgjobs"
    verbose_name = _("Jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register checks and handlers, as django.contrib.admin does with `admin.py`."""
        checks.register()
        _find_tasks()
        try:
            autodiscover_modules("jobs", "tasks")
        except SystemExit as error:  # else the process would end here, perhaps with status 0
            frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
            names = [str(frame.f_globals.get("__name__")) for frame in frames]
            name = next((name for name in names if name.endswith((".jobs", ".tasks"))), names[-1])
            raise ImproperlyConfigured(
                f"{name} must be importable, got {error!r}. Do not exit in a module's own code."
            ) from error


def _find_tasks() -> None:
    """Let the registry find tasks, if there is a framework that declares some."""
    try:
        from django_pgjobs.tasks import finding  # noqa: PLC0415 -- the framework may be missing
    except ModuleNotFoundError as error:
        if error.name != "django_tasks":
            raise
    else:
        registry.finders.append(finding.find)
