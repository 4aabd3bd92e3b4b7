"""The queues of pgmq: what is in each, and the pages of its messages, which say why dead letters are there.

Invariant: looking reads no message; no page takes more than two statements about queues or messages, nor
counts further than so many; a queue, or a pgmq, that is not there is told and is no error.
"""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, ProgrammingError, transaction
from django.http import HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext, ngettext
from psycopg import errors

from django_pgjobs.admin.denials import Denial, TellsDenials, denial_of
from django_pgjobs.admin.histories import ActHistory
from django_pgjobs.admin.message_acts import ACTS, MessageAct, RedriveForm
from django_pgjobs.exceptions import InvalidOption, PgmqMissing, QueueMissing
from django_pgjobs.pgmq import calls, grants, installation, peeks
from django_pgjobs.pgmq.models import QueueRecord
from django_pgjobs.pgmq.queues import Queue, database
from django_pgjobs.sessions import reason
from django_pgjobs.windows import WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.models import QuerySet
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

    _QueueRecordAdmin = admin.ModelAdmin[QueueRecord]
else:
    _QueueRecordAdmin = admin.ModelAdmin

IN_A_PAGE = 50  # messages
_SHORT = 160  # characters of a message in the list
_LARGEST_ID = 2**63 - 1
_PAGES = "admin/django_pgjobs/message_queue/"
_MISSING = (InvalidOption, QueueMissing, PgmqMissing)


class MessageQueueAdmin(TellsDenials, ActHistory, _QueueRecordAdmin):
    """Queues of pgmq, to look at, redrive and purge."""

    act_labels: ClassVar = {name: act.label for name, act in ACTS.items()}

    class Media:
        css = {"all": ("django_pgjobs/admin.css",)}  # noqa: RUF012 -- as Django documents it
        js = ("django_pgjobs/admin.js",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Queues are created by code and migrations."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[QueueRecord]:
        """Read where queues are written: a replica may be behind."""
        return QueueRecord.objects.using(database())

    def database(self) -> str:
        """Return the alias of the queues."""
        return database()

    def denial_of(self, error: ProgrammingError, part: str) -> Denial:
        """Return what lets the role use pgmq's tables, which are not those of jobs."""
        denial = denial_of(error, database(), part)
        printing = f"python {grants.printing(part, denial.role, [])}"
        return denial._replace(missing=[], printing=printing, running="")

    def get_urls(self) -> list[URLPattern]:
        """Name the pages as Django names those of a model."""

        def page(route: str, view: Callable[..., HttpResponse], name: str) -> URLPattern:
            name = f"django_pgjobs_pgmq_queuerecord_{name}"
            return path(route, self.admin_site.admin_view(view), name=name)

        return [
            page("", self.changelist_view, "changelist"),
            page("<path:object_id>/change/", self.queue_view, "change"),
            page("<path:object_id>/message/<int:message_id>/", self.message_view, "message"),
            page("<path:object_id>/act/<str:name>/", self.act_view, "act"),
            page("<path:object_id>/history/", self.history_view, "history"),
        ]

    # -------------------------------------------------------------------------------------- pages

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show every queue with its figures; or how pgmq is installed."""
        self._check_view(request)
        missing, found = "", []
        try:
            with transaction.atomic(using=database()):
                found = peeks.figures(most=WINDOW)
        except PgmqMissing as error:
            missing = _said(error)
        context = {
            "title": capfirst(self.opts.verbose_name_plural),
            "cl": {"opts": self.opts},  # the breadcrumbs of a list ask there
            "actions_on_top": True,  # else the page of a list has an inline style, which a CSP refuses
            "queues": list(map(_row, found)),
            "most": WINDOW if any(one.more for one in found) else None,
            "missing": missing,
            "wheel": installation.WHEEL,
            **(extra_context or {}),
        }
        return self._page(request, "change_list", context)

    def queue_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show some messages of a queue, from an id on."""
        self._check_view(request)
        name = unquote(object_id)
        try:
            with transaction.atomic(using=database()):
                found, has_more = peeks.page(Queue(name), IN_A_PAGE, after=_after(request))
        except _MISSING as error:
            return self._missing(request, name, error)
        context = {
            "title": gettext("Messages of %(queue)s") % {"queue": name},
            "original": name,
            "object_id": quote(name),
            "peeks": [(one, _short(one)) for one in found],
            "after": _after(request),
            "next": found[-1].id if has_more else None,
            "acts": [act for act in ACTS.values() if act.allowed(request)],
        }
        return self._page(request, "change_form", context)

    def message_view(self, request: HttpRequest, object_id: str, message_id: int) -> HttpResponse:
        """Show one message."""
        self._check_view(request)
        name = unquote(object_id)
        try:
            with transaction.atomic(using=database()):
                fits = 1 <= message_id <= _LARGEST_ID
                found = peeks.one(Queue(name), message_id) if fits else None
        except _MISSING as error:
            return self._missing(request, name, error)
        if found is None:
            text = gettext("Message %(id)s is not in the queue %(queue)s, or not any more.")
            said = {"id": message_id, "queue": name}
            self.message_user(request, text % said, messages.WARNING)
            return self._to_queue(name)
        context = {
            "title": gettext("Message %(id)s") % {"id": message_id},
            "original": f"{name} #{message_id}",
            "queue": name,
            "object_id": quote(name),
            "peek": found,
            "message": _indented(found.message, is_shown=found.is_whole),
            "headers": _indented(found.headers),
            "acts": [act for act in ACTS.values() if act.allowed(request)],
        }
        return self._page(request, "message", context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show who has done what; a queue that is not there has no page."""
        self._check_view(request)
        try:
            with transaction.atomic(using=database()), calls.explained(database()):
                return super().history_view(request, object_id, extra_context)
        except PgmqMissing as error:
            return self._missing(request, unquote(object_id), error)

    # --------------------------------------------------------------------------------------- acts

    def act_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """Ask, and then act on the messages that are named or on all."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        self._check_view(request)
        act = ACTS.get(name)
        if act is None or not act.allowed(request):
            raise PermissionDenied
        queue_name = unquote(object_id)
        ids = None if request.POST.get("all") == "1" else _ids(request)
        if ids == []:
            text = gettext("Nothing was changed: no message was selected.")
            self.message_user(request, text, messages.WARNING)
            return self._to_queue(queue_name)
        is_confirmed = "confirmed" in request.POST
        try:
            with transaction.atomic(using=database()):
                queue = Queue(queue_name)
                form = RedriveForm(request.POST if is_confirmed else None, alias=queue.alias)
                asks = act.name == "redrive"
                if is_confirmed and (not asks or form.is_valid()):
                    options = form.cleaned_data if asks else {}
                    return self._act(request, act, queue, ids, options)
        except _MISSING as error:
            return self._missing(request, queue_name, error)
        except OperationalError as error:
            if not isinstance(error.__cause__, errors.LockNotAvailable):
                raise
            text = gettext("Nothing was changed: the queue is in use. Try again in a moment.")
            self.message_user(request, text, messages.WARNING)
            return self._to_queue(queue_name)
        context = {
            "title": f"{act.label}?",
            "original": queue_name,
            "object_id": quote(queue_name),
            "act": act,
            "ids": ids,
            "question": _question(act, ids, queue_name),
            "form": form if asks else None,
        }
        return self._page(request, "confirm", context)

    def _act(
        self,
        request: HttpRequest,
        act: MessageAct,
        queue: Queue,
        ids: list[int] | None,
        options: dict[str, Any],
    ) -> HttpResponse:
        done = act.on(queue, ids, request, **options)
        level = messages.SUCCESS if done else messages.WARNING
        self.message_user(request, act.tell(done, ids), level)
        return self._to_queue(queue.name)

    # -------------------------------------------------------------------------------------------

    def _check_view(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied

    def _page(self, request: HttpRequest, name: str, context: dict[str, Any]) -> TemplateResponse:
        request.current_app = self.admin_site.name
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "has_view_permission": True,
            **context,
        }
        return TemplateResponse(request, f"{_PAGES}{name}.html", context)

    def _missing(self, request: HttpRequest, name: str, error: Exception) -> HttpResponse:
        """Go back to the list, which says more where all of pgmq is missing."""
        if not isinstance(error, PgmqMissing):
            text = gettext("There is no queue %(queue)s in pgmq, or not any more.")
            self.message_user(request, text % {"queue": ascii(name)}, messages.WARNING)
        return HttpResponseRedirect(self._url("changelist"))

    def _to_queue(self, name: str) -> HttpResponse:
        return HttpResponseRedirect(self._url("change", quote(name)))

    def _url(self, page: str, *args: str) -> str:
        return reverse(f"{self.admin_site.name}:django_pgjobs_pgmq_queuerecord_{page}", args=args)


def _said(error: Exception) -> str:
    """Return what the server said, of which this was made."""
    cause = error.__cause__
    return _said(cause) if isinstance(cause, Exception) else reason(error)


def _row(figures: peeks.Figures) -> dict[str, Any]:
    """Return what the list shows of a queue; one whose table or name is odd has no page, nor one that browsers fold."""
    try:
        Queue(figures.queue)
    except InvalidOption:
        has_page = False
    else:
        has_page = figures.length is not None and figures.queue not in {".", ".."}
    return {
        "figures": figures,
        "object_id": quote(figures.queue) if has_page else None,
        "oldest": _ago(figures.oldest_age),
        "newest": _ago(figures.newest_age),
    }


def _ago(seconds: int | None) -> datetime.datetime | None:
    return None if seconds is None else timezone.now() - datetime.timedelta(seconds=seconds)


def _after(request: HttpRequest) -> int:
    """Return the id that a page goes on from; what is none begins at the first."""
    said = request.GET.get("after", "")
    return int(said) if _is_id(said) else 0


def _ids(request: HttpRequest) -> list[int]:
    said = request.POST.getlist("id")
    return list(dict.fromkeys(int(one) for one in said if _is_id(one)))


def _is_id(text: str) -> bool:
    digits = len(str(_LARGEST_ID))
    return text.isascii() and text.isdigit() and len(text) <= digits and int(text) <= _LARGEST_ID


def _question(act: MessageAct, ids: list[int] | None, queue: str) -> str:
    if act.name == "redrive":
        if ids is None:
            return gettext("Redrive all messages of %(queue)s?") % {"queue": queue}
        text = ngettext(
            "Redrive %(count)s message of %(queue)s?",
            "Redrive %(count)s messages of %(queue)s?",
            len(ids),
        )
    else:
        if ids is None:
            text = gettext(
                "Delete all messages of %(queue)s for good, those too that come until then?"
            )
            return text % {"queue": queue}
        text = ngettext(
            "Delete %(count)s message of %(queue)s for good?",
            "Delete %(count)s messages of %(queue)s for good?",
            len(ids),
        )
    return text % {"count": len(ids), "queue": queue}


def _short(peek: peeks.Peek) -> str:
    if not peek.is_whole:
        return ""
    text = json.dumps(peek.message, ensure_ascii=False)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


def _indented(value: object, *, is_shown: bool = False) -> str:
    if value is None and not is_shown:
        return ""
    return json.dumps(value, ensure_ascii=False, indent=2)
