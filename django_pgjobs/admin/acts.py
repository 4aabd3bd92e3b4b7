"""What staff may do with jobs: one guarded statement each, told and recorded.

Invariant: an act changes only rows whose status allows it, says how many it left alone and why, and
leaves a LogEntry that names the user. What is stored is the same in every language.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.utils.formats import localize
from django.utils.text import get_text_list
from django.utils.translation import gettext, ngettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from django_pgjobs import lifecycle
from django_pgjobs.lifecycle import FINAL, Status
from django_pgjobs.models import Job

if TYPE_CHECKING:
    from django.http import HttpRequest

    from django_pgjobs.models import JobQuerySet

LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)  # due now, and before what came since


@dataclass(frozen=True)
class Act:
    """One act: its names, the permission it takes, and the jobs that it is for."""

    name: str
    label: Any  # of the button
    description: Any  # of the action on a selection
    permission: str
    sources: frozenset[Status]
    do: Callable[[JobQuerySet], int]
    flag: int = CHANGE

    def allowed(self, request: HttpRequest) -> bool:
        """Say whether the user may do this."""
        user: Any = request.user
        return bool(user.has_perm(f"django_pgjobs.{self.permission}"))

    def on(self, jobs: JobQuerySet, request: HttpRequest, one: Job | None = None) -> int:
        """Do it, record it, and return how many rows it changed."""
        changed = self.do(jobs)
        if changed:
            record(request, Job, one or f"{changed} ×", _told(self, request), self.flag)
        return changed

    def tell(self, changed: int, asked: int | None) -> str:
        """Say how many were changed and why others were not; `asked` None is not known."""
        done = ngettext("%(act)s: %(count)s job.", "%(act)s: %(count)s jobs.", changed) % {
            "act": self.label,
            "count": localize(changed),
        }
        left = None if asked is None else max(0, asked - changed)
        if left == 0:
            return done
        rest = (
            gettext("Any others were left alone: not %(statuses)s, or locked at this moment.")
            if left is None
            else ngettext(
                "%(count)s was skipped: not %(statuses)s, or locked at this moment.",
                "%(count)s were skipped: not %(statuses)s, or locked at this moment.",
                left,
            )
        )
        statuses = get_text_list([str(status.label) for status in sorted(self.sources)])
        return f"{done} {rest % {'count': localize(left), 'statuses': statuses}}"


def record(
    request: HttpRequest,
    model: type[Model],
    what: Model | str,
    message: str,
    flag: int = CHANGE,
) -> None:
    """Leave a LogEntry: the user did this to one row, or to what is described."""
    pk = what.pk if isinstance(what, Model) else None
    LogEntry.objects.create(
        user_id=cast("int", request.user.pk),
        content_type=ContentType.objects.get_for_model(model),
        object_id=None if pk is None else str(pk),
        object_repr=str(what)[:200],
        action_flag=flag,
        change_message=message,
    )


def recorded(message: str) -> str:
    """Return what `Act.on` has recorded as its reader would say it."""
    name, space, filters = message.partition(" ")
    return f"{ACTS[name].label}{space}{filters}" if name in ACTS else message


def _told(act: Act, request: HttpRequest) -> str:
    filters = request.GET.urlencode()
    return f"{act.name} ({filters})" if filters else act.name


ACTS = {
    act.name: act
    for act in (
        Act(
            "retry",
            _("Retry"),
            _("Retry selected jobs"),
            "retry_job",
            frozenset({Status.FAILED, Status.CANCELLED}),
            lambda jobs: jobs.retry(),
        ),
        Act(
            "run_now",
            _("Run now"),
            _("Run selected jobs now"),
            "retry_job",
            frozenset({Status.PENDING}),
            lambda jobs: jobs.delayed().reschedule(LONG_AGO),
        ),
        Act(
            "cancel",
            pgettext_lazy("act on a job", "Cancel"),
            _("Cancel selected jobs"),
            "cancel_job",
            frozenset({Status.PENDING, Status.RUNNING}),
            lambda jobs: jobs.cancel(),
        ),
        Act(
            "delete",
            _("Delete"),
            _("Delete selected jobs"),
            "delete_job",
            FINAL | {Status.PENDING},
            lifecycle.delete,
            DELETION,
        ),
    )
}
