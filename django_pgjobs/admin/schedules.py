"""Schedules: those of the code to look at and to switch, others to make and edit.

Invariant: what is saved fires. The rule of a schedule that comes from code is changed in the code.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.db import router, transaction
from django.db.models.functions import Now
from django.utils.formats import localize
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, ngettext, pgettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from django_pgjobs import registry, rules, schedules
from django_pgjobs.admin import details
from django_pgjobs.admin.acts import record
from django_pgjobs.admin.denials import TellsDenials
from django_pgjobs.admin.filters import OwnFilters
from django_pgjobs.admin.histories import ActHistory
from django_pgjobs.admin.schedule_forms import ScheduleForm, rule_faults
from django_pgjobs.exceptions import PgJobsError, UnknownKind
from django_pgjobs.models import Schedule
from django_pgjobs.timetable import ScheduleQuerySet

if TYPE_CHECKING:
    import datetime

    from django.db.models import QuerySet
    from django.http import HttpRequest

    _ScheduleAdmin = admin.ModelAdmin[Schedule]
else:
    _ScheduleAdmin = admin.ModelAdmin

_SHOWN = 5  # ticks
_DAY, _HOUR, _MINUTE = 86_400, 3_600, 60  # seconds


def in_words(schedule: Schedule) -> str:
    """Return the rule for a reader."""
    if schedule.every is None:
        return f"{schedule.cron} ({schedule.tz})"
    seconds = schedule.every.total_seconds()
    if seconds % _DAY == 0:
        count = round(seconds / _DAY)
        return ngettext("every day", "every %(count)d days", count) % {"count": count}
    if seconds % _HOUR == 0:
        count = round(seconds / _HOUR)
        return ngettext("every hour", "every %(count)d hours", count) % {"count": count}
    if seconds % _MINUTE == 0:
        count = round(seconds / _MINUTE)
        return ngettext("every minute", "every %(count)d minutes", count) % {"count": count}
    return gettext("every %(interval)s") % {"interval": schedule.every}


class ScheduleAdmin(TellsDenials, OwnFilters, ActHistory, _ScheduleAdmin):
    """Schedules, to look at, to switch, to run now, and to make."""

    form = ScheduleForm
    # What is at the right end a narrow window hides.
    list_display = ("name", "state", "rule", "next_at", "last_at", "kind", "origin")
    list_filter = ("enabled", "from_code")
    own_lookups = ("enabled__exact", "from_code__exact")
    search_fields = ("name", "kind")
    ordering = ("name",)
    sortable_by = ()
    actions: Any = ("enable", "disable", "run_now")
    act_labels: ClassVar = {
        "enable": _("Enabled"),
        "disable": _("Disabled"),
        "run_now": _("Run now"),
    }
    readonly_fields: ClassVar[Any] = ("coming", "last_at", "state", "origin", "arguments")
    _made_by_hand = ("name", "kind", "payload", "cron", "tz", "every", "missed", "enabled")
    _of_the_code = ("name", "kind", "arguments", "rule", "missed", "enabled")
    _known = ("state", "coming", "last_at", "origin")

    class Media:
        css = {"all": ("django_pgjobs/admin.css",)}  # noqa: RUF012 -- as Django documents it
        js = ("django_pgjobs/admin.js",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        """Read where schedules are written, with the time there."""
        found: QuerySet[Schedule] = ScheduleQuerySet(
            Schedule, using=router.db_for_write(Schedule)
        ).timed()
        return found

    def get_fields(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        """Show what it is, and what is known of it; secrets of the payload only to who may edit it."""
        if obj is None:
            return self._made_by_hand
        editable = self.has_change_permission(request, obj) and not obj.from_code
        return (*(self._made_by_hand if editable else self._of_the_code), *self._known)

    def get_readonly_fields(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        """Leave of those of the code the switch."""
        fixed = [name for name in self._of_the_code if name != "enabled"]
        return (*self.readonly_fields, *(fixed if obj is not None and obj.from_code else ()))

    # ------------------------------------------------------------------------------------ columns

    @admin.display(description=_("rule"))
    def rule(self, schedule: Schedule) -> str:
        """When it fires."""
        return in_words(schedule)

    @admin.display(description=_("payload"))
    def arguments(self, schedule: Any) -> str:
        """The payload, with secrets masked."""
        return details.payload(schedule)

    @admin.display(description=pgettext_lazy("schedule", "state"))
    def state(self, schedule: Schedule) -> str:
        """Whether it fires, and why not, told by more than a colour."""
        return format_html('<span class="pgjobs-status pgjobs-{}">{}</span>', *_state(schedule))

    @admin.display(description=pgettext_lazy("schedule", "origin"))
    def origin(self, schedule: Schedule) -> str:
        """Who has made it."""
        return gettext("from code") if schedule.from_code else gettext("made by hand")

    @admin.display(description=_("next five ticks"))
    def coming(self, schedule: Any) -> str:
        """The next ticks, by the clocks of the rule's own zone."""
        if not schedule.is_active:
            return details.NONE
        faults = dict(rule_faults(schedule.cron, schedule.tz, schedule.every))
        if faults:
            return " ".join(map(str, faults.values()))
        ticks: list[datetime.datetime] = []
        with suppress(OverflowError):  # beyond the year 9999 there is no tick
            for tick in islice(schedules.upcoming(schedule), _SHOWN):
                ticks.append(tick.astimezone(rules.zone(schedule.tz)))  # noqa: PERF401 -- keeps those before
        tell = _exactly if any(tick.second for tick in ticks) else localize
        lines = [(f"{tell(tick)} {tick.tzname()}",) for tick in ticks]
        return format_html_join("\n", "<div>{}</div>", lines) or details.NONE

    # --------------------------------------------------------------------------------- permissions

    def has_delete_permission(self, request: HttpRequest, obj: Schedule | None = None) -> bool:
        """One of the code's would come back with the next start of a worker."""
        removable = obj is None or not obj.from_code or obj.removed_at is not None
        return removable and super().has_delete_permission(request, obj)

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Say whether the user may run schedules now."""
        user: Any = request.user
        return bool(user.has_perm("django_pgjobs.run_schedule"))

    # --------------------------------------------------------------------------------------- acts

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: Any) -> None:
        """Count from now, where the rule was changed or it was switched on.

        Else the next tick is left as it is in the table: it may have moved on since the row was read.
        """
        if not change:
            super().save_model(request, obj, form, change)
            return
        changed = set(form.changed_data)
        # An interval goes by no zone's clocks.
        if changed & {"cron", "every", "enabled"} or ("tz" in changed and obj.every is None):
            obj.since, obj.next_at = Now(), None
            changed |= {"since", "next_at"}
        obj.save(update_fields=changed)

    @admin.action(permissions=["change"], description=_("Enable selected schedules"))
    def enable(self, request: HttpRequest, chosen: Any) -> None:
        """Switch those on that are off."""
        self._switch(request, chosen, enabled=True)

    @admin.action(permissions=["change"], description=_("Disable selected schedules"))
    def disable(self, request: HttpRequest, chosen: Any) -> None:
        """Switch those off that are on."""
        self._switch(request, chosen, enabled=False)

    def _switch(self, request: HttpRequest, chosen: Any, *, enabled: bool) -> None:
        asked = chosen.count()
        rows = ScheduleQuerySet(Schedule, using=router.db_for_write(Schedule))
        with transaction.atomic(using=rows.db):
            # Locked, so that those which are noted are those that are switched.
            switched = list(chosen.filter(enabled=not enabled).select_for_update())
            these = rows.filter(pk__in=[schedule.pk for schedule in switched])
            _ = these.enable() if enabled else these.disable()
            record(request, Schedule, switched, "enable" if enabled else "disable")
        idle = [one for one in switched if enabled and one.removed_at is not None]
        for schedule in idle:
            text = gettext("%(schedule)s is on, but does not fire: it was removed from the code.")
            self.message_user(request, text % {"schedule": schedule}, messages.WARNING)
        left = max(0, asked - len(switched))
        if len(idle) < len(switched) or left:
            self._tell(request, *_switched(len(switched) - len(idle), left, enabled=enabled))

    @admin.action(permissions=["run"], description=_("Run selected schedules now"))
    def run_now(self, request: HttpRequest, chosen: Any) -> None:
        """Enqueue one job each; their ticks go on as before."""
        count = 0
        for schedule in chosen:
            try:
                job = schedules.enqueue_now(schedule, router.db_for_write(Schedule))
            except PgJobsError as error:
                text = gettext("%(schedule)s was not run: %(reason)s")
                unknown = isinstance(error, UnknownKind)
                why = gettext("No handler is registered for this kind.") if unknown else error
                told = text % {"schedule": schedule, "reason": why}
                self.message_user(request, told, messages.ERROR)
                continue
            if job.is_new:
                record(request, Schedule, [schedule], f"run_now #{job.job_id}")
                count += 1
            else:
                text = gettext("No job was enqueued for %(schedule)s: job #%(job)s stands for it.")
                told = text % {"schedule": schedule, "job": job.job_id}
                self.message_user(request, told, messages.WARNING)
        text = ngettext("%(count)s job was enqueued.", "%(count)s jobs were enqueued.", count)
        self._tell(request, count, text)

    def _tell(self, request: HttpRequest, count: int, text: str, left: str = "") -> None:
        told = text % {"count": localize(count)} if count else gettext("Nothing was changed.")
        level = messages.SUCCESS if count else messages.WARNING
        self.message_user(request, f"{told} {left}".rstrip(), level)


def _switched(count: int, left: int, *, enabled: bool) -> tuple[int, str, str]:
    """Return how many were switched, the text that says so, and one about those that were left."""
    if enabled:
        done = ngettext("%(count)s schedule is on.", "%(count)s schedules are on.", count)
        rest = ngettext("%(count)s was on already.", "%(count)s were on already.", left)
    else:
        done = ngettext("%(count)s schedule is off.", "%(count)s schedules are off.", count)
        rest = ngettext("%(count)s was off already.", "%(count)s were off already.", left)
    return count, done, rest % {"count": localize(left)} if left else ""


def _state(schedule: Schedule) -> tuple[str, str]:
    """Return the class of a colour, and the word."""
    if schedule.removed_at is not None:
        return "dead", gettext("removed from the code")
    if not schedule.enabled:
        return "dead", pgettext("schedule", "off")
    if registry.find(schedule.kind) is None:
        return "failed", gettext("without a handler")
    return "done", pgettext("schedule", "on")


def _exactly(moment: datetime.datetime) -> str:
    return f"{localize(moment.date())}, {moment:%H:%M:%S}"
