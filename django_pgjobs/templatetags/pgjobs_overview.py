"""The overview at the top of the app's page in the admin, for those who may see jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import template
from django.db import ProgrammingError, router

if TYPE_CHECKING:
    from django.template import Context

register = template.Library()


@register.inclusion_tag("admin/django_pgjobs/overview.html", takes_context=True)
def pgjobs_overview(context: Context) -> dict[str, Any]:
    """Show the present figures and a place for the curves."""
    # Only now: Django imports this module in projects without its admin too.
    from django_pgjobs.admin import denials  # noqa: PLC0415
    from django_pgjobs.admin.overview import HOURS, overview  # noqa: PLC0415
    from django_pgjobs.models import Job  # noqa: PLC0415
    from django_pgjobs.windows import WINDOW  # noqa: PLC0415

    request = context["request"]
    if not request.user.has_perm("django_pgjobs.view_job"):
        return {"now": None}
    alias = router.db_for_write(Job)
    try:
        with denials.kept_usable(alias):
            now = overview()
    except ProgrammingError as error:
        return {"now": None, "denial": denials.denial_of(error, alias, denials.LOOK)}
    return {"now": now, "hours": HOURS, "window": WINDOW, "here": request.path}
