"""The table of figures: the sums that pages show of the past, without counting jobs.

Invariant: one row for each minute, queue and kind; workers only add to it.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy


class Figure(models.Model):
    """What workers have added up of one minute, queue and kind: pages read this, not the jobs."""

    pk = models.CompositePrimaryKey("minute", "queue", "kind")
    minute = models.DateTimeField(_("minute"))
    queue = models.CharField(_("queue"), max_length=63)
    kind = models.CharField(_("kind"), max_length=200)
    done = models.BigIntegerField(_("attempts that were done"), db_default=0)
    failed = models.BigIntegerField(_("attempts that failed"), db_default=0)
    wait = models.FloatField(
        _("seconds of waiting"),
        db_default=0,
        help_text=_("From the time that a job was due until it was claimed, of all attempts."),
    )
    run = models.FloatField(
        _("seconds of running"), db_default=0, help_text=_("In the handler, of all attempts.")
    )

    class Meta:
        verbose_name = pgettext_lazy("job", "figure")
        verbose_name_plural = pgettext_lazy("job", "figures")
        indexes = (models.Index("queue", "kind", name="pgjobs_figure_names"),)

    def __str__(self) -> str:
        return f"{self.kind} in {self.queue}, {self.minute:%Y-%m-%d %H:%M}"
