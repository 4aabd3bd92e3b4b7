"""The list of queues: what waits and runs in each, and the switch that pauses one.

Invariant: the figures are read from indexes alone and counted no further than a page can use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import router
from django.db.models.functions import Now
from django.http import HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext

from django_pgjobs import conf, inspection, registry
from django_pgjobs.admin.acts import record
from django_pgjobs.admin.windows import WINDOW, by_index
from django_pgjobs.models import Queue
from django_pgjobs.options import QUEUE_BYTES
from django_pgjobs.sessions import execute_on_django

if TYPE_CHECKING:
    import datetime

    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

    _QueueAdmin = admin.ModelAdmin[Queue]
else:
    _QueueAdmin = admin.ModelAdmin


MOST_QUEUES = 200  # with waiting jobs, that a page tells of


class Depth(NamedTuple):
    """The figures of one queue; counts end at one more than `WINDOW`.

    Of more jobs with a key than that only the first are known: there are `more`, due or delayed ones.
    """

    name: str
    due: int
    delayed: int
    running: int
    failed: int  # in the last hour
    oldest: datetime.datetime | None  # the time of the first due job
    more: bool
    paused_at: datetime.datetime | None
    paused_by: str


def declared_queues() -> set[str]:
    """Return the queues that handlers and settings name."""
    of_handlers = {job_type.options.queue for job_type in registry.kinds().values()}
    return of_handlers | set(conf.get().queues)


def depths() -> list[Depth]:
    """Return every queue that has something to tell, or that handlers or settings name.

    Of more than `MOST_QUEUES` with waiting jobs these are the first by name.
    """
    alias = router.db_for_write(Queue)
    params = {
        "declared": sorted(declared_queues()),
        "most": WINDOW + 1,
        "queues": MOST_QUEUES + 1,
    }
    with by_index(alias):
        rows = execute_on_django(alias)(inspection.QUEUES, params)
    return [Depth(*row) for row in rows]


def are_all(queues: list[Depth]) -> bool:
    """Say whether these are all queues with waiting jobs."""
    return sum(queue.due + queue.delayed > 0 for queue in queues) <= MOST_QUEUES


class QueueAdmin(_QueueAdmin):
    """Queues, to look at and to pause."""

    class Media:
        css = {"all": ("django_pgjobs/admin.css",)}  # noqa: RUF012 -- as Django documents it

    def has_add_permission(self, request: HttpRequest) -> bool:
        """A queue exists where a job names it."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Queue | None = None) -> bool:
        """A row is a pause: it is resumed, not deleted."""
        return False

    def get_urls(self) -> list[URLPattern]:
        """Add the switch; a queue has no page of its own."""
        view = self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name="django_pgjobs_queue_changelist"),
            path("switch/", view(self.switch), name="django_pgjobs_queue_switch"),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show every queue with its figures."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        queues = depths()
        context = {
            **self.admin_site.each_context(request),
            "title": capfirst(self.opts.verbose_name_plural),
            "opts": self.opts,
            "cl": {"opts": self.opts},  # the breadcrumbs of a list ask there
            "actions_on_top": True,  # else the page of a list has an inline style, which a CSP refuses
            "media": self.media,
            "queues": queues,
            "more": any(queue.more for queue in queues),
            "most": None if are_all(queues) else MOST_QUEUES,
            "may_pause": self.has_change_permission(request),
            "window": WINDOW,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/django_pgjobs/queue/change_list.html", context)

    def switch(self, request: HttpRequest) -> HttpResponse:
        """Pause or resume one queue; the form says which, so that pressing twice does it once."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_change_permission(request):
            raise PermissionDenied
        name, pause = request.POST.get("name", ""), request.POST.get("pause") == "1"
        # What SQL has paused under a longer name can be resumed.
        fits = "\0" not in name and (not pause or 0 < len(name.encode()) <= QUEUE_BYTES)
        if fits and self._set(request, name, pause=pause):
            text = (
                gettext("Queue %(name)s is paused.")
                if pause
                else gettext("Queue %(name)s goes on.")
            )
            self.message_user(request, text % {"name": name}, messages.SUCCESS)
        else:
            self.message_user(request, gettext("Nothing was changed."), messages.WARNING)
        return HttpResponseRedirect(
            reverse(f"{self.admin_site.name}:django_pgjobs_queue_changelist")
        )

    def _set(self, request: HttpRequest, name: str, *, pause: bool) -> bool:
        queues = Queue.objects.using(router.db_for_write(Queue))
        if pause:
            queues.get_or_create(name=name)
            who = str(request.user)[:200]
            changed = queues.filter(name=name, paused_at=None).update(
                paused_at=Now(), paused_by=who
            )
        else:
            changed = queues.filter(name=name, paused_at__isnull=False).update(
                paused_at=None, paused_by=""
            )
        if changed:
            record(request, Queue, [queues.get(pk=name)], "Paused" if pause else "Resumed")
        return bool(changed)
