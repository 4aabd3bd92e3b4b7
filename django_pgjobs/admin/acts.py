"""What staff may do with jobs: one guarded statement each, told and recorded.

Invariant: an act changes only rows whose status allows it, says how many it left alone and why, and
leaves a LogEntry that names the user.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.utils.translation import gettext, ngettext
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
            record(request, Job, one or _jobs(changed), _told(self, request), self.flag)
        return changed

    def tell(self, changed: int, asked: int | None) -> str:
        """Say how many were changed and why others were not; `asked` None is not known."""
        text = f"{self.label}: {_jobs(changed)}."
        left = None if asked is None else max(0, asked - changed)
        if left == 0:
            return text
        statuses = ", ".join(str(s.label) for s in sorted(self.sources))
        why = gettext("not %(statuses)s, or locked at this moment") % {"statuses": statuses}
        if left is None:
            return f"{text} " + gettext("Others were left alone: %(why)s.") % {"why": why}
        skipped = ngettext("%(count)d was skipped", "%(count)d were skipped", left) % {
            "count": left
        }
        return f"{text} {skipped}: {why}."


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


def _jobs(count: int) -> str:
    return ngettext("%(count)d job", "%(count)d jobs", count) % {"count": count}


def _told(act: Act, request: HttpRequest) -> str:
    filters = request.GET.urlencode()
    return f"{act.label} ({filters})" if filters else str(act.label)


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
            _("Cancel"),
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
