"""The filters beside the list of jobs. They say what can be chosen: `windows` applies it.

Invariant: a value that no job can have, which only an address typed by hand has, is told and not asked for.
Names of queues and kinds are offered from the code, the settings and the rows, these no further than
`MOST_NAMES`; one that is not offered filters all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.db import router
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from django_pgjobs import inspection, registry
from django_pgjobs.lifecycle import Status
from django_pgjobs.models import DEFAULT_QUEUE, Job
from django_pgjobs.queues import declared_queues
from django_pgjobs.sessions import execute_on_django

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.contrib.admin import ModelAdmin
    from django.http import HttpRequest

    from django_pgjobs.models import JobQuerySet
    from django_pgjobs.sessions import Rows

MOST_NAMES = 200  # of queues, or of pairs of a queue and a kind, that are looked up in the rows

_KEPT = "_pgjobs_names"  # in a request
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


def _names(request: HttpRequest) -> Rows:
    """Return the names that rows have: two filters of a page ask, and one statement answers both."""
    kept = vars(request)
    if _KEPT not in kept:
        execute = execute_on_django(router.db_for_write(Job))
        kept[_KEPT] = execute(inspection.NAMES, {"most": MOST_NAMES})
    found: Rows = kept[_KEPT]
    return found


class _Named(_Shown):
    """A filter by names that the code knows, that rows have, or that somebody has asked for."""

    longest: int

    def can_be(self, value: str) -> bool:
        """Say whether a job can have this."""
        return len(value) <= self.longest and "\0" not in value

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[Any]:
        """Offer what is declared and what is there, and what was chosen by hand."""
        found = {name for of, name in _names(request) if of == self.parameter_name}
        names = found | set(self.declared())
        if chosen := request.GET.get(self.parameter_name or ""):
            names.add(chosen)
        return [(name, name) for name in sorted(names)]

    def declared(self) -> Iterable[str]:
        """Return the names that code and settings speak of."""
        raise NotImplementedError


class StatusFilter(_Shown):
    """By status, each on its index."""

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[Any]:
        """Offer every status."""
        return [choice for choice in Status.choices if choice[0] != Status.BLOCKED]


class QueueFilter(_Named):
    """By queue: those that handlers or settings name, have jobs, had some of late, or are paused."""

    title = _("queue")
    parameter_name = "queue"
    longest = 63  # characters, as the column

    def declared(self) -> Iterable[str]:
        """Return the queues of handlers and of the settings."""
        return {DEFAULT_QUEUE, *declared_queues()}


class KindFilter(_Named):
    """By kind: those that have a handler, and those of which jobs have run of late."""

    title = _("kind")
    parameter_name = "kind"
    longest = 200  # characters, as the column

    def declared(self) -> Iterable[str]:
        """Return every kind that has a handler."""
        return registry.kinds()


class FinishedFilter(_Shown):
    """By the time since the end."""

    title = pgettext_lazy("filter", "finished")
    parameter_name = "finished"
    periods: ClassVar = [
        ("hour", _("in the last hour")),
        ("day", _("in the last 24 hours")),
        ("week", _("in the last 7 days")),
    ]

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> Iterable[Any]:
        """Offer some periods."""
        return self.periods


FILTERS = (StatusFilter, QueueFilter, KindFilter, FinishedFilter)
CHOICES = tuple(str(each.parameter_name) for each in FILTERS)
