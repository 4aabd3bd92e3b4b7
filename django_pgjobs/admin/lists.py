"""The list of jobs: what is searched for and chosen, how far it is counted, and what a selection is.

Invariant: what cannot be is refused with a reason, never asked of the database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.views.main import ChangeList
from django.utils.translation import gettext

from django_pgjobs import registry
from django_pgjobs.admin.filters import CHOICES
from django_pgjobs.windows import WINDOW, Choice

if TYPE_CHECKING:
    from django.http import HttpRequest

    from django_pgjobs.models import JobQuerySet

LARGE = ("payload", "result", "errors", "meta")  # JSON, never read for a list
_LONGEST_ID = 19  # digits of a bigint
_SHORT = 80  # characters of a value that is told
_ACROSS = "select_across"  # of Django's form


def search(text: str) -> dict[str, Any]:
    """Return what is searched for: an id, a subject or a kind, whichever the text can be."""
    term = text.strip()
    number = term.removeprefix("#")
    if _is_id(number):
        return {"pk": int(number)}
    model, colon, key = term.partition(":")
    # A kind may have a colon too, but the name of a model has a dot.
    if colon and "." in model and term not in registry.kinds():
        return {"subject_type": model.lower(), "subject_id": key}
    return {"kind": term} if term else {}


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST_ID


class JobList(ChangeList):
    """The jobs that were chosen, in the order of an index."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> JobQuerySet:
        """Return what the list shows or, for an act on all that match, every such job."""
        found: Any = super().get_queryset(request, exclude_parameters).defer(*LARGE)
        choice = Choice({name: request.GET.get(name) for name in CHOICES}, search(self.query))
        self.has_status = bool(request.GET.get("status"))
        self.is_windowed = choice.is_windowed
        if is_across(request):
            return choice.all(found)
        listed = choice.listed(found)
        self.leaves_keyed = choice.leaves_keyed
        return listed

    def get_results(self, request: HttpRequest) -> None:
        """Count, but not far."""
        super().get_results(request)
        self.beyond_window = self.result_count > WINDOW
        self.is_exact = not self.is_windowed and not self.beyond_window
        self.window = WINDOW


def is_across(request: HttpRequest) -> bool:
    """Say whether an act is for all jobs that match, listed or not."""
    return request.POST.get(_ACROSS) == "1"


def refuse(request: HttpRequest) -> str:
    """Return why a posted selection is none, which only a form made by hand sends, or ""."""
    for pk in request.POST.getlist(ACTION_CHECKBOX_NAME):
        if not _is_id(pk):
            text = gettext("A selected job must be an id, got %(value)s. Select it in the list.")
            return text % {"value": ascii(pk[:_SHORT])}
    if (across := request.POST.get(_ACROSS, "0")) not in {"0", "1"}:
        text = gettext("select_across must be 0 or 1, got %(value)s. Select jobs in the list.")
        return text % {"value": ascii(across[:_SHORT])}
    return ""
