"""The list of workers: who lives, who is stopping, and what the dead ones died of."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db import router
from django.db.models import Case, Count, F, IntegerField, OuterRef, Subquery, Value, When
from django.db.models.functions import Coalesce, Now
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from django_pgjobs import conf
from django_pgjobs.admin.denials import TellsDenials
from django_pgjobs.admin.filters import OwnFilters
from django_pgjobs.models import Job, Worker
from django_pgjobs.windows import BoundedPaginator

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest

    _WorkerAdmin = admin.ModelAdmin[Worker]
else:
    _WorkerAdmin = admin.ModelAdmin

_STATES = {
    "living": pgettext_lazy("worker", "living"),
    "stopping": pgettext_lazy("worker", "stopping"),
    "silent": pgettext_lazy("worker", "silent"),
    "dead": pgettext_lazy("worker", "dead"),
}


class WorkerAdmin(TellsDenials, OwnFilters, _WorkerAdmin):
    """Workers, to look at."""

    list_display = (
        "name",
        "state",
        "death",
        "running",
        "served",
        "threads",
        "heartbeat_at",
        "started_at",
    )
    ordering = (F("died_at").desc(nulls_first=True), "-id")
    sortable_by = ()
    show_full_result_count = False
    paginator = BoundedPaginator
    fields = ("host", "pid", "state", "served", "threads", "running", "started_at", "heartbeat_at", "stopping_at", "died_at", "death")  # fmt: skip
    readonly_fields = fields

    class Media:
        css = {"all": ("django_pgjobs/admin.css",)}  # noqa: RUF012 -- as Django documents it

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Workers enter themselves."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Worker | None = None) -> bool:
        """A death is a fact that only the lease decides."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Worker | None = None) -> bool:
        """Its jobs are found by its row: the reaper deletes old ones."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Count running jobs by their index, and tell the silent by the database's clock."""
        alias = router.db_for_write(Job)
        running = (
            Job.objects.using(alias)
            .running()
            .filter(locked_by=OuterRef("pk"))
            .order_by()
            .values("locked_by")
            .annotate(jobs=Count("pk"))
            .values("jobs")
        )
        lease = datetime.timedelta(seconds=conf.get().lease)
        return Worker.objects.using(alias).annotate(
            jobs=Coalesce(Subquery(running, output_field=IntegerField()), 0),
            life=Case(
                When(died_at__isnull=False, then=Value("dead")),
                When(heartbeat_at__lt=Now() - lease, then=Value("silent")),
                When(stopping_at__isnull=False, then=Value("stopping")),
                default=Value("living"),
            ),
        )

    @admin.display(description=_("worker"))
    def name(self, worker: Worker) -> str:
        """Host, process and id, as logs and errors call it."""
        return str(worker)

    @admin.display(description=pgettext_lazy("worker", "state"))
    def state(self, worker: Any) -> str:
        """What is known of its life."""
        return format_html(
            '<span class="pgjobs-status pgjobs-{}">{}</span>', worker.life, _STATES[worker.life]
        )

    @admin.display(description=_("queues"))
    def served(self, worker: Worker) -> str:
        """Those that it was told, or all."""
        if worker.queues:
            return _named(worker.queues)
        if worker.exclude:
            return gettext("every queue but %(queues)s") % {"queues": _named(worker.exclude)}
        return gettext("every queue")

    @admin.display(description=_("running jobs"))
    def running(self, worker: Any) -> str:
        """How many, with a link to all that run."""
        if not worker.jobs:
            return "0"
        url = reverse(f"{self.admin_site.name}:django_pgjobs_job_changelist")
        return format_html('<a href="{}?status=running">{}</a>', url, worker.jobs)


def _named(queues: Any) -> str:
    """Name the queues of a list, in whose place plain SQL may have put anything."""
    return ", ".join(map(str, queues if isinstance(queues, list) else [queues]))
