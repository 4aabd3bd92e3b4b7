"""The table in which pgmq itself lists its queues. It also tells Django's routers what is asked about.

Invariant: read only, and never migrated: pgmq makes the table and writes its rows.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _


class QueueRecord(models.Model):
    """One queue, as pgmq lists it."""

    queue_name = models.CharField(max_length=47, primary_key=True)
    is_partitioned = models.BooleanField()
    is_unlogged = models.BooleanField()
    created_at = models.DateTimeField()

    objects: ClassVar[models.Manager[QueueRecord]] = models.Manager()

    class Meta:
        app_label = "django_pgjobs_pgmq"  # said here, so that Queue works without the app too
        managed = False
        db_table = '"pgmq"."meta"'  # Django quotes no name that has its quotes
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        default_permissions = ("view", "change", "delete")  # of the admin: see, redrive, purge

    def __str__(self) -> str:
        return self.queue_name
