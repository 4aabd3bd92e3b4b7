"""The Django app of pgmq, apart from that of the jobs: who does not list it gets nothing of it."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import Tags, register

from django_pgjobs.pgmq import checks


class PgmqConfig(AppConfig):
    """The app config of django_pgjobs.pgmq."""

    name = "django_pgjobs.pgmq"
    label = "django_pgjobs_pgmq"
    verbose_name = "pgmq"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks."""
        register(checks.check_database)
        register(checks.check_installation, Tags.database)
