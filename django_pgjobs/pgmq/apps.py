"""The Django app of pgmq, apart from that of the jobs: who does not list it gets nothing of it."""

from __future__ import annotations

from django.apps import AppConfig, apps
from django.core.checks import Tags, register

from django_pgjobs.pgmq import checks


class PgmqConfig(AppConfig):
    """The app config of django_pgjobs.pgmq."""

    name = "django_pgjobs.pgmq"
    label = "django_pgjobs_pgmq"
    verbose_name = "pgmq"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks, and what the doctor looks at."""
        if apps.is_installed("django_pgjobs"):
            from django_pgjobs import doctor  # noqa: PLC0415 -- it imports models
            from django_pgjobs.pgmq import symptoms  # noqa: PLC0415 -- likewise

            doctor.LOOKS["consumers"] = (symptoms.consumers, symptoms.WELL)
        register(checks.check_database)
        register(checks.check_installation, Tags.database)
