"""The table of workers: one row for each start of a worker process.

Invariant: its id is never used again, so that a restarted process cannot hide the jobs of the one before
it; a row without `died_at` lives as long as its heartbeat is younger than the lease.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Worker(models.Model):
    """One start of a worker process. A restarted one is another worker, with another id."""

    id = models.BigAutoField(primary_key=True)
    host = models.CharField(_("host"), max_length=255)
    pid = models.IntegerField(_("process id"))
    queues = models.JSONField(_("queues"), help_text=_("Null: every queue."), null=True, blank=True)
    exclude = models.JSONField(_("queues left out"), null=True, blank=True)
    by_transaction = models.JSONField(
        _("queues claimed by transaction"),
        help_text=_("True: every queue."),
        null=True,
        blank=True,
    )
    kinds = models.JSONField(
        _("known kinds"),
        help_text=_("With their limits. Null: not known."),
        null=True,
        blank=True,
    )
    limited = models.JSONField(_("limited queues"), null=True, blank=True)
    threads = models.IntegerField(_("threads"))
    started_at = models.DateTimeField(_("started at"), db_default=Now())
    heartbeat_at = models.DateTimeField(_("last heartbeat"), db_default=Now())
    stopping_at = models.DateTimeField(_("stopping since"), null=True, blank=True)
    died_at = models.DateTimeField(_("died at"), null=True, blank=True)
    death = models.CharField(_("reason of its death"), max_length=200, db_default="")
    started = models.JSONField(
        _("jobs started"),
        null=True,
        help_text=_("Ids of the jobs that it had started and not settled. Null: not known."),
    )

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        indexes = (
            models.Index(
                "heartbeat_at",
                name="pgjobs_worker_living",
                condition=Q(died_at__isnull=True),
            ),
        )

    def __str__(self) -> str:
        return f"{self.host}:{self.pid} #{self.pk}"
