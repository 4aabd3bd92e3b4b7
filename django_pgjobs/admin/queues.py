"""The list of queues: what waits and runs in each, and the switch that pauses one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import router
from django.http import HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext

from django_pgjobs import queues
from django_pgjobs.admin.acts import record
from django_pgjobs.admin.denials import TellsDenials
from django_pgjobs.models import Queue
from django_pgjobs.options import QUEUE_BYTES
from django_pgjobs.windows import WINDOW

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

    _QueueAdmin = admin.ModelAdmin[Queue]
else:
    _QueueAdmin = admin.ModelAdmin


class QueueAdmin(TellsDenials, _QueueAdmin):
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
        depths = queues.depths(router.db_for_write(Queue))
        context = {
            **self.admin_site.each_context(request),
            "title": capfirst(self.opts.verbose_name_plural),
            "opts": self.opts,
            "cl": {"opts": self.opts},  # the breadcrumbs of a list ask there
            "actions_on_top": True,  # else the page of a list has an inline style, which a CSP refuses
            "media": self.media,
            "queues": depths,
            "more": any(depth.more for depth in depths),
            "most": None if queues.are_all(depths) else queues.MOST_QUEUES,
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
        alias = router.db_for_write(Queue)
        if pause:
            changed = queues.pause(name, by=str(request.user), database=alias)
        else:
            changed = queues.resume(name, database=alias)
        if changed:
            row = Queue.objects.using(alias).get(pk=name)
            record(request, Queue, [row], "Paused" if pause else "Resumed")
        return changed
