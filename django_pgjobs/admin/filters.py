"""The filters beside the list of jobs. They say what can be chosen: `windows` applies it.

Invariant: a value that no job can have, which only an address typed by hand has, is told and not asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from django_pgjobs import registry
from django_pgjobs.lifecycle import Status
from django_pgjobs.models import DEFAULT_QUEUE, Queue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.contrib.admin import ModelAdmin
    from django.http import HttpRequest

    from django_pgjobs.models import Job, JobQuerySet

_SHORT = 80  # characters of a value that is told


class OwnFilters:
    """A page of which an address can ask for no column but by the filters beside its list.

    Others would read the table, and `payload__password__startswith` would tell what is masked.
    """

    own_lookups: ClassVar[tuple[str, ...]] = ()

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """Refuse whatever else an address asks for: Django answers 400."""
        return lookup in self.own_lookups


class _Shown(admin.SimpleListFilter):
    """A filter that leaves the rows to the list."""

    def __init__(
        self,
        request: HttpRequest,
        params: dict[str, Any],
        model: type[Job],
        model_admin: ModelAdmin[Any],
    ) -> None:
        """Refuse what cannot be: Django goes to the list without filters then."""
        super().__init__(request, params, model, model_admin)
        chosen = self.value()
        if chosen and not self.can_be(chosen):
            text = gettext(
                "The filter %(filter)s must be one of the choices beside the list, got %(value)s. "
                "All filters were removed."
            )
            told = {"filter": self.title, "value": ascii(chosen[:_SHORT])}
            messages.warning(request, text % told)
            raise IncorrectLookupParameters

    def can_be(self, value: str) -> bool:
        """Say whether a job can have this."""
        return value in dict(self.lookup_choices)

    def queryset(self, request: HttpRequest, queryset: JobQuerySet) -> None:  # type: ignore[override]
        """Apply nothing."""


class _Named(_Shown):
    """A filter by names that the code knows, or that somebody has asked for."""

    longest: int

    def can_be(self, value: str) -> bool:
        """Say whether a job can have this."""
        return len(value) <= self.longest and "\0" not in value

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[Any]:
        """Offer what is known, and what was chosen by hand."""
        names = set(self.known())
        if chosen := request.GET.get(self.parameter_name or ""):
            names.add(chosen)
        return [(name, name) for name in sorted(names)]

    def known(self) -> Iterable[str]:
        """Return the names to choose from."""
        raise NotImplementedError


class StatusFilter(_Shown):
    """By status, each on its index."""

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[Any]:
        """Offer every status."""
        return [choice for choice in Status.choices if choice[0] != Status.BLOCKED]


class QueueFilter(_Named):
    """By queue: those that handlers name, and those that somebody has paused."""

    title = _("queue")
    parameter_name = "queue"
    longest = 63  # characters, as the column

    def known(self) -> Iterable[str]:
        """Return the queues that the code and the table of queues name."""
        declared = {job_type.options.queue for job_type in registry.kinds().values()}
        return declared | {DEFAULT_QUEUE} | set(Queue.objects.values_list("name", flat=True)[:200])


class KindFilter(_Named):
    """By kind: those that have a handler."""

    title = _("kind")
    parameter_name = "kind"
    longest = 200  # characters, as the column

    def known(self) -> Iterable[str]:
        """Return every declared kind."""
        return registry.kinds()


class FinishedFilter(_Shown):
    """By the time since the end."""

    title = pgettext_lazy("filter", "finished")
    parameter_name = "finished"
    _choices: ClassVar = [
        ("hour", _("in the last hour")),
        ("day", _("in the last 24 hours")),
        ("week", _("in the last 7 days")),
    ]

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[Any]:
        """Offer some periods."""
        return self._choices


FILTERS = (StatusFilter, QueueFilter, KindFilter, FinishedFilter)
CHOICES = tuple(str(each.parameter_name) for each in FILTERS)
