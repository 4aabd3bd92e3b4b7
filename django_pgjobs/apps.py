"""The Django app: registers the checks and imports `jobs.py` of every installed app."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import register
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from django_pgjobs import checks


class PgJobsConfig(AppConfig):
    """The app config of django_pgjobs."""

    name = "django_pgjobs"
    verbose_name = _("Jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register checks and handlers, as django.contrib.admin does with `admin.py`."""
        register(checks.check_settings)
        register(checks.check_database)
        autodiscover_modules("jobs")
