"""The history of one row: who has done what with it, in the language of who reads.

Invariant: what is not known is not told as known. An act on many jobs has noted its filters and how many
they were, not which: a job's history shows it apart, where the job can have been among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.http import QueryDict
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _

from django_pgjobs.admin.filters import FinishedFilter, KindFilter, QueueFilter, StatusFilter
from django_pgjobs.admin.lists import search
from django_pgjobs.lifecycle import Status
from django_pgjobs.models import Job

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from django.http import HttpRequest, HttpResponse

    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = object  # a mixin when it runs

TITLES: Mapping[str, Any] = {
    "q": _("search"),
    **{
        str(each.parameter_name): each.title
        for each in (StatusFilter, QueueFilter, KindFilter, FinishedFilter)
    },
    # What acts on messages note.
    "messages": _("messages"),
    "into": _("Into the queue"),
    "rate": _("Messages a second"),
}
CHOSEN_FROM: Mapping[str, Any] = {"status": Status.choices, "finished": FinishedFilter.periods}
_MOST = 100  # acts on many jobs that are looked at, the latest ones


class ActHistory(_ModelAdmin):
    """For the `ModelAdmin` of what acts are for: its history tells them by their labels."""

    act_labels: ClassVar[Mapping[str, Any]]  # by the names that entries of the log begin with

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Name the acts in the language of who reads."""
        answer = super().history_view(request, object_id, extra_context)
        if isinstance(answer, TemplateResponse) and answer.context_data:
            of_many = self.acts_on_many(answer.context_data["object"])
            for entry in (*answer.context_data["action_list"], *of_many):
                entry.change_message = _told(entry.change_message, self.act_labels)
            answer.context_data["of_many"] = of_many
        return answer

    def acts_on_many(self, one: Any) -> list[LogEntry]:
        """Return the entries of acts on many rows of which this may have been one."""
        return []


def _told(message: str, labels: Mapping[str, Any]) -> str:
    """Return what an act has noted, its name and perhaps more, in the reader's words."""
    name, space, more = message.partition(" ")
    filters = ", ".join(f"{title}: {value}" for title, value in _in_words(more))
    return f"{labels.get(name, name)}{space}{f'({filters})' if filters else more}"


def _in_words(noted: str) -> Iterator[tuple[Any, Any]]:
    for name, value in _filters(noted).items():
        choices = dict(CHOSEN_FROM.get(name, ()))
        yield TITLES.get(name, name), choices.get(value, value)


def _filters(noted: str) -> QueryDict:
    """Return the filters that an act has noted, in brackets."""
    return QueryDict(noted[1:-1] if noted.startswith("(") else "")


def acts_on_many(job: Job) -> list[LogEntry]:
    """Return the entries of acts on many jobs that can have had this one among them, the latest first."""
    entries = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(Job),
        object_id=None,
        action_time__gte=job.created_at,
    ).exclude(action_flag=DELETION)  # it is here
    latest = entries.select_related("user").order_by("-action_time")[:_MOST]
    return [entry for entry in latest if _can_mean(entry, job)]


def _can_mean(entry: LogEntry, job: Job) -> bool:
    """Say whether the filters that an act has noted fit a job, by what of it never changes."""
    filters = _filters(entry.change_message.partition(" ")[2])
    fixed = {name: filters[name] for name in ("queue", "kind") if filters.get(name)}
    fixed |= search(filters.get("q", ""))
    return all(getattr(job, name) == value for name, value in fixed.items())
