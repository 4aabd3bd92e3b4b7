"""The list of jobs and the page of one: all that is known of it, and the acts that its status allows.

Invariant: nothing can be edited; a job changes by its acts alone, which take POST and a permission.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import router
from django.db.models import TextField
from django.db.models.functions import Cast
from django.http import HttpResponseNotAllowed, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.timesince import timesince
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from django_pgjobs import masking
from django_pgjobs.admin import details, histories
from django_pgjobs.admin.acts import ACTS, MOST_NOTED, Act, offered
from django_pgjobs.admin.denials import TellsDenials
from django_pgjobs.admin.filters import CHOICES, FILTERS, OwnFilters
from django_pgjobs.admin.lists import LARGE, JobList, is_across, refuse, search
from django_pgjobs.admin.overview import curves, overview
from django_pgjobs.models import Job, JobQuerySet
from django_pgjobs.windows import WINDOW, BoundedPaginator, by_index

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.contrib.admin.models import LogEntry
    from django.http import HttpRequest, HttpResponse
    from django.urls import URLPattern

    _JobAdmin = admin.ModelAdmin[Job]
else:
    _JobAdmin = admin.ModelAdmin  # not generic when it runs, in every version

_SHORT = 80  # characters of an error in the list
# The part of `has_…_permission()` that stands for each permission.
_PERMISSIONS = {"retry_job": "retry", "cancel_job": "cancel", "delete_job": "remove"}


def _on_selection(act: Act) -> Callable[[JobAdmin, HttpRequest, JobQuerySet], HttpResponse | None]:
    """Return the act as an action of the list."""

    @admin.action(permissions=[_PERMISSIONS[act.permission]], description=act.description)
    def on_selection(
        job_admin: JobAdmin, request: HttpRequest, jobs: JobQuerySet
    ) -> HttpResponse | None:
        across = is_across(request)
        selected = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if act.name == "delete" and "confirmed" not in request.POST:
            context = {
                **job_admin.admin_site.each_context(request),
                "title": gettext("Delete jobs?"),
                "opts": job_admin.opts,
                "media": job_admin.media,
                "selected": selected,
                "across": across,
            }
            return TemplateResponse(request, "admin/django_pgjobs/job/delete_jobs.html", context)
        asked = jobs.count() if across else len(selected)
        done = act.on(jobs, request)
        level = messages.SUCCESS if done.changed else messages.WARNING
        job_admin.message_user(request, act.tell(done, asked), level)
        return None

    on_selection.__name__ = act.name
    return on_selection


class JobAdmin(TellsDenials, OwnFilters, histories.ActHistory, _JobAdmin):
    """Jobs, to look at and to act on."""

    # Few, so that a window of 1,280 pixels has room for the error.
    list_display = ("job", "state", "queue", "tries", "age", "error")
    list_display_links = ("job",)
    _of_pending = ("job", "queue", "tries", "run_at", "priority", "error")
    own_lookups = CHOICES
    list_filter = FILTERS
    list_per_page = 50
    list_max_show_all = MOST_NOTED  # whoever selects job by job finds each one's history
    actions: Any = tuple(map(_on_selection, ACTS.values()))
    search_fields = ("id",)
    search_help_text = _("An id, a kind, or a subject such as shop.order:7")
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # each would count all of the table
    sortable_by = ()
    paginator = BoundedPaginator
    readonly_fields: ClassVar[Any] = details.FIELDS
    fieldsets: ClassVar[Any] = details.FIELDSETS
    change_form_template = "admin/django_pgjobs/job/change_form.html"
    change_list_template = "admin/django_pgjobs/job/change_list.html"
    object_history_template = "admin/django_pgjobs/job/history.html"
    act_labels: ClassVar = {name: act.label for name, act in ACTS.items()}

    class Media:
        css = {"all": ("django_pgjobs/admin.css",)}  # noqa: RUF012 -- as Django documents it
        js = ("django_pgjobs/admin.js",)

    # -------------------------------------------------------------------------------- permissions

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Jobs are made by code."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Job | None = None) -> bool:
        """Jobs change by acts, never by a form."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Job | None = None) -> bool:
        """Deleting is an act too: the admin's own page would take running jobs along."""
        return False

    # --------------------------------------------------------------------------------------- rows

    def get_queryset(self, request: HttpRequest) -> JobQuerySet:
        """Read where jobs are written: a replica may be behind."""
        return JobQuerySet(Job, using=router.db_for_write(Job))

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Job | None:
        """Read JSON as text, of which `details` makes what can be shown: Django's own refuses some."""
        texts = {f"{column}_text": Cast(column, TextField()) for column in LARGE}
        jobs: Any = self.get_queryset(request).defer(*LARGE).annotate(**texts)
        try:
            job: Job = jobs.get(pk=self.opts.pk.to_python(object_id))
        except (Job.DoesNotExist, ValidationError):
            return None
        for column in LARGE:
            setattr(job, column, masking.read(getattr(job, f"{column}_text")))
        return job

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list; or act on a selection, which may be all that there are."""
        if request.method == "POST":
            if refusal := refuse(request):
                self.message_user(request, refusal, messages.WARNING)
                return HttpResponseRedirect(request.get_full_path())
            return super().changelist_view(request, extra_context)
        with by_index(router.db_for_write(Job)):
            return super().changelist_view(request, extra_context)

    def get_list_display(self, request: HttpRequest) -> Any:
        """Show of pending jobs, which are all in one state, when and in which order they run."""
        is_pending = request.GET.get("status") == Job.Status.PENDING
        return self._of_pending if is_pending else self.list_display

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobList]:
        """Use the list that stays on indexes."""
        return JobList

    def get_search_results(
        self, request: HttpRequest, queryset: Any, search_term: str
    ) -> tuple[Any, bool]:
        """Search by id, subject or kind, whichever the term can be."""
        return queryset.filter(**search(search_term)), False

    # ------------------------------------------------------------------------------------ columns

    @admin.display(description=_("job"))
    def job(self, job: Job) -> str:
        """The kind and the id."""
        return str(job)

    @admin.display(description=_("status"))
    def state(self, job: Job) -> str:
        """The status, told by more than a colour."""
        return details.badge(job)

    @admin.display(description=_("attempts"))
    def tries(self, job: Job) -> str:
        """How many of how many."""
        return f"{job.attempts} / {job.max_attempts}"

    @admin.display(description=pgettext_lazy("job", "age"))
    def age(self, job: Job) -> str:
        """The time since it was enqueued."""
        return timesince(job.created_at, depth=1)

    @admin.display(description=_("last error"), empty_value="")
    def error(self, job: Job) -> str:
        """The last error in short, and all of it as a title."""
        first = job.last_error.partition("\n")[0]
        short = first if len(first) <= _SHORT else first[:_SHORT] + "…"
        return format_html('<span title="{}">{}</span>', job.last_error, short) if short else ""

    # --------------------------------------------------------------------------------------- acts

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Say whether the user may retry jobs and run them now."""
        return ACTS["retry"].allowed(request)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Say whether the user may cancel jobs."""
        return ACTS["cancel"].allowed(request)

    def has_remove_permission(self, request: HttpRequest) -> bool:
        """Say whether the user may delete jobs that are not running."""
        return ACTS["delete"].allowed(request)

    def get_urls(self) -> list[URLPattern]:
        """Add the address that the buttons of a job post to."""
        act = path(
            "<path:object_id>/act/<str:name>/",
            self.admin_site.admin_view(self.act_on_one),
            name="django_pgjobs_job_act",
        )
        figures = path(
            "figures/",
            self.admin_site.admin_view(self.figures),
            name="django_pgjobs_job_figures",
        )
        return [figures, act, *super().get_urls()]

    def figures(self, request: HttpRequest) -> HttpResponse:
        """Answer what the overview shows, for the page that refreshes itself."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {"now": overview(), "window": WINDOW}
        cards = render_to_string("admin/django_pgjobs/cards.html", context, request)
        return JsonResponse({**curves(), "cards": cards})

    def act_on_one(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """Do one act on one job, and go back to it."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        act = ACTS.get(name)
        if act is None or not act.allowed(request) or not self.has_view_permission(request):
            raise PermissionDenied
        job = self.get_object(request, unquote(object_id))
        if job is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        done = act.on(self.get_queryset(request).filter(pk=job.pk), request)
        level = messages.SUCCESS if done.changed else messages.WARNING
        self.message_user(request, act.tell(done, asked=1), level)
        gone = done.changed and act.name == "delete"
        page = "changelist" if gone else "change"
        return HttpResponseRedirect(
            reverse(
                f"{self.admin_site.name}:django_pgjobs_job_{page}", args=[] if gone else [job.pk]
            )
        )

    def acts_on_many(self, one: Job) -> list[LogEntry]:
        """Return the entries of acts on many jobs of which this may have been one."""
        return histories.acts_on_many(one)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Offer the acts that are for this job and that the user may do."""
        job = self.get_queryset(request).filter(pk=context["original"].pk)
        context["acts"] = [act for act in offered(job) if act.allowed(request)]
        return super().render_change_form(request, context, *args, **kwargs)
