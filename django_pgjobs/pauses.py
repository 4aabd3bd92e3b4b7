"""The table of queues: which are paused, since when, and by whom.

Invariant: no row says the same as one without `paused_at`.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Queue(models.Model):
    """What is said about a queue: a row exists only where there is something to say."""

    name = models.CharField(_("name"), max_length=63, primary_key=True)
    paused_at = models.DateTimeField(_("paused at"), null=True, blank=True)
    paused_by = models.CharField(_("paused by"), max_length=200, db_default="")

    class Meta:
        verbose_name = _("queue")
        verbose_name_plural = _("queues")

    def __str__(self) -> str:
        return self.name
