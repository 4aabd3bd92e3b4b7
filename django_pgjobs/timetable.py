"""The table of schedules: the rules by which workers enqueue jobs by themselves.

Invariant: `next_at` is the first tick that has not fired, or NULL where the first one after `since` is
still to be worked out; only the transaction that enqueues a tick's job moves it on. So a rule is
changed, or switched on, by clearing `next_at` and setting `since`. Rows are few: no index.
"""

from __future__ import annotations

import datetime
from functools import reduce
from operator import and_
from typing import Any, ClassVar, Self

from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Now
from django.db.models.lookups import Exact
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from django_pgjobs import rules
from django_pgjobs.options import EARLIEST, LATEST

_TYPE = Func(F("payload"), function="jsonb_typeof", output_field=models.TextField())


class _Instant(models.FloatField):  # type: ignore[type-arg]  # no generic when it runs
    """Seconds since 1970 as an aware datetime, also where USE_TZ is off and an hour comes twice."""

    def from_db_value(self, value: float | None, *_: Any) -> datetime.datetime | None:
        return None if value is None else datetime.datetime.fromtimestamp(value, datetime.UTC)


def _instant(of: Any) -> Func:
    seconds = "extract(epoch from %(expressions)s)::float8"
    return Func(of, template=seconds, output_field=_Instant())


class ScheduleQuerySet(models.QuerySet["Schedule"]):
    """Schedules, and the verbs that switch them."""

    def active(self) -> Self:
        """Choose those that fire: switched on, and not removed from the code."""
        return self.filter(enabled=True, removed_at=None)

    def due(self) -> Self:
        """Choose active ones with a tick to fire, or the first one to be worked out."""
        return self.active().filter(Q(next_at=None) | Q(next_at__lte=Now()))

    def timed(self) -> Any:
        """Add the instants that ticks are worked out from: `now`, `begins` and `following`."""
        return self.annotate(
            now=_instant(Now()), begins=_instant(F("since")), following=_instant(F("next_at"))
        )

    def enable(self) -> int:
        """Switch on what is off; return how many. Ticks count from now: none of the past fires."""
        return self.filter(enabled=False).update(enabled=True, since=Now(), next_at=None)

    def disable(self) -> int:
        """Switch off what is on; return how many. Jobs that exist stay."""
        return self.filter(enabled=True).update(enabled=False, next_at=None)


class Schedule(models.Model):
    """A recurring rule, at each tick of which one job is enqueued."""

    class Missed(models.TextChoices):
        """What becomes of the ticks at which no worker was there."""

        SKIP = "skip", pgettext_lazy("missed ticks", "skip them")
        LATEST = "latest", pgettext_lazy("missed ticks", "make up for the latest one")
        ALL = "all", pgettext_lazy("missed ticks", "make up for all")

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(_("name"), max_length=rules.NAME_LENGTH)
    kind = models.CharField(_("kind"), max_length=200)
    payload = models.JSONField(_("payload"), db_default=Value({}, models.JSONField()), blank=True)
    cron = models.CharField(
        _("cron expression"),
        max_length=rules.CRON_LENGTH,
        db_default="",
        blank=True,
        help_text=_("Minute, hour, day of month, month, day of week; such as 0 3 * * *"),
    )
    tz = models.CharField(
        _("time zone"),
        max_length=rules.ZONE_LENGTH,
        db_default="UTC",
        help_text=_("The clocks that the cron expression goes by; such as Europe/Paris"),
    )
    every = models.DurationField(
        _("interval"),
        null=True,
        blank=True,
        help_text=_("Instead of a cron expression: days, and hours:minutes:seconds, as 1 00:30:00"),
    )
    missed = models.CharField(
        _("missed ticks"), max_length=6, choices=Missed, db_default=Missed.LATEST.value
    )
    enabled = models.BooleanField(_("enabled"), db_default=True)
    since = models.DateTimeField(
        _("since"), db_default=Now(), help_text=_("Ticks count from here.")
    )
    next_at = models.DateTimeField(
        _("next tick"), null=True, blank=True, help_text=_("Null: to be worked out.")
    )
    last_at = models.DateTimeField(_("last tick"), null=True, blank=True)
    from_code = models.BooleanField(_("from code"), db_default=False)
    removed_at = models.DateTimeField(_("removed from the code at"), null=True, blank=True)

    added: ClassVar[tuple[str, ...]] = ()  # as those of Job: schedules fire on the older tables too

    objects = ScheduleQuerySet.as_manager()

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        permissions = (("run_schedule", "Can run schedules now"),)
        constraints = (
            models.UniqueConstraint(fields=("name",), name="pgjobs_schedule_name"),
            models.CheckConstraint(
                name="pgjobs_schedule_names", condition=~Q(name="") & ~Q(kind="") & ~Q(tz="")
            ),
            models.CheckConstraint(
                name="pgjobs_schedule_rule",
                condition=Q(every__isnull=True) & ~Q(cron="")
                | Q(every__isnull=False, every__range=(rules.SHORTEST, rules.LONGEST), cron=""),
            ),
            models.CheckConstraint(
                name="pgjobs_schedule_missed", condition=Q(missed__in=rules.MISSED)
            ),
            models.CheckConstraint(
                name="pgjobs_schedule_times",
                condition=reduce(
                    and_,
                    (
                        Q((f"{column}__isnull", True)) | Q((f"{column}__range", (EARLIEST, LATEST)))
                        for column in ("since", "next_at", "last_at", "removed_at")
                    ),
                ),
            ),
            models.CheckConstraint(
                name="pgjobs_schedule_payload", condition=Q(Exact(_TYPE, Value("object")))
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def rule(self) -> rules.Rule:
        """Its rule, or `InvalidOption` where plain SQL has stored none that fires here."""
        return rules.Cron(self.cron, self.tz) if self.every is None else rules.Every(self.every)

    @property
    def is_active(self) -> bool:
        """Whether it fires."""
        return self.enabled and self.removed_at is None
