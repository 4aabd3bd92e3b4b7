"""The jobs about one object, on that object's own page: `SubjectJobsMixin`.

Invariant: one query for so many jobs and no more, through an index that gives the newest first; and
nobody sees there what the list of jobs would not show them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.utils import label_for_field
from django.db import ProgrammingError, router
from django.forms import Media
from django.template.loader import render_to_string
from django.urls import reverse

from django_pgjobs import subjects
from django_pgjobs.admin import denials, details
from django_pgjobs.models import Job, JobQuerySet

if TYPE_CHECKING:
    from django.db.models import Model
    from django.http import HttpRequest

    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = object  # a mixin when it runs

SHOWN = 10  # jobs, the newest ones

_FIELD = "subject_jobs"
_COLUMNS = ("kind", "status", "queue", "attempts", "created_at", "last_error")


class SubjectJobsMixin(_ModelAdmin):
    """For the `ModelAdmin` of a model that jobs are about: it shows an object's newest jobs.

        class OrderAdmin(SubjectJobsMixin, admin.ModelAdmin): ...

    They come last on the page, for those who may view jobs on this admin site.
    """

    @property
    def media(self) -> Media:
        """What the page loads: the colours of the statuses too."""
        return super().media + Media(css={"all": ("django_pgjobs/admin.css",)})

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Add the jobs to what cannot be edited."""
        fields = super().get_readonly_fields(request, obj)
        return [*fields, _FIELD] if self._shows_jobs(request, obj) else fields

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Leave the jobs to the end: by default what cannot be edited stands among the fields."""
        return [name for name in super().get_fields(request, obj) if name != _FIELD]

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Add the jobs at the end."""
        fieldsets = super().get_fieldsets(request, obj)
        jobs = (None, {"fields": (_FIELD,)})
        return [*fieldsets, jobs] if self._shows_jobs(request, obj) else fieldsets

    @admin.display(description=Job._meta.verbose_name_plural)  # noqa: SLF001 -- Django's own API
    def subject_jobs(self, obj: Model) -> str:
        """The newest jobs about this object, and the way to all of them."""
        alias = router.db_for_write(Job)
        about = JobQuerySet(Job, using=alias).for_subject(obj)
        newest = about.order_by("-id").only(*_COLUMNS, "max_attempts", "cancel_requested_at")
        try:
            with denials.kept_usable(alias):
                jobs = list(newest[: SHOWN + 1])
        except ProgrammingError as error:
            return str(denials.denial_of(error, alias, denials.LOOK))
        if not jobs:
            return details.NONE
        site = self.admin_site.name
        context = {
            "columns": [label_for_field(name, Job) for name in _COLUMNS],
            "jobs": [
                (
                    job,
                    reverse(f"{site}:django_pgjobs_job_change", args=[job.pk]),
                    details.badge(job),
                )
                for job in jobs[:SHOWN]
            ],
            "more": len(jobs) > SHOWN and SHOWN,
            "all": f"{reverse(f'{site}:django_pgjobs_job_changelist')}?{_search(obj)}",
        }
        return render_to_string("admin/django_pgjobs/subject_jobs.html", context)

    def _shows_jobs(self, request: HttpRequest, obj: Model | None) -> bool:
        site = self.admin_site
        return (
            obj is not None
            and site.is_registered(Job)
            and site.get_model_admin(Job).has_view_permission(request)
        )


def _search(obj: Model) -> str:
    return urlencode({"q": ":".join(subjects.identify(obj))})
