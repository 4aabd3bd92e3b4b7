"""What staff may do with jobs: guarded statements, told and recorded.

Invariant: an act changes only rows that it is for, says how many it left alone and why, and leaves a
LogEntry that names the user: one for each job or, of many, one for all. What is stored is the same in
every language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.db.models import BooleanField, ExpressionWrapper, Model, Q
from django.db.models.functions import Now
from django.utils.formats import localize
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext, pgettext_lazy

from django_pgjobs import lifecycle, notify
from django_pgjobs.cancelling import CancelReply
from django_pgjobs.lifecycle import Status
from django_pgjobs.models import Job, JobQuerySet

if TYPE_CHECKING:
    from django.http import HttpRequest

MOST_NOTED = (
    200  # jobs of one act that each have an entry in the log: as many as a list shows at once
)


class Done(NamedTuple):
    """What an act has done."""

    changed: int
    asked_to_stop: int = 0  # of these


@dataclass(frozen=True)
class Act:
    """One act: its names, the permission it takes, and the jobs that it is for."""

    name: str
    label: Any  # of the button
    description: Any  # of the action on a selection
    permission: str
    fits: Q
    why_not: Any  # of jobs that it is not for
    do: Callable[[JobQuerySet], int]
    flag: int = CHANGE
    then: Callable[[int], str] | None = None  # what becomes of so many jobs

    def allowed(self, request: HttpRequest) -> bool:
        """Say whether the user may do this."""
        user: Any = request.user
        return bool(user.has_perm(f"django_pgjobs.{self.permission}"))

    def on(self, jobs: JobQuerySet, request: HttpRequest) -> Done:
        """Do it, record it, and return how many rows it changed."""
        alias = lifecycle.alias_of(jobs)
        chosen = jobs.filter(self.fits)
        with transaction.atomic(using=alias):
            # Locked, so that the jobs which are noted are those that are changed.
            locked = chosen.only("kind").select_for_update(skip_locked=True)
            noted: list[Any] = list(locked[: MOST_NOTED + 1])
            are_few = len(noted) <= MOST_NOTED
            if are_few:
                chosen = JobQuerySet(Job, using=alias).filter(pk__in=[job.pk for job in noted])
            changed = self.do(chosen)
            whats = noted if are_few else [f"{changed} ×"]
            record(request, Job, whats, _told(self, request), self.flag)
        return Done(changed, changed.requested if isinstance(changed, CancelReply) else 0)

    def tell(self, done: Done, asked: int) -> str:
        """Say how many of those asked for were changed, and why others were not."""
        return " ".join(self._sentences(done, max(0, asked - done.changed)))

    def _sentences(self, done: Done, left: int) -> Iterator[str]:
        yield ngettext("%(act)s: %(count)s job.", "%(act)s: %(count)s jobs.", done.changed) % {
            "act": self.label,
            "count": localize(done.changed),
        }
        if stopping := done.asked_to_stop:
            yield ngettext(
                "%(count)s is running and was asked to stop.",
                "%(count)s are running and were asked to stop.",
                stopping,
            ) % {"count": localize(stopping)}
        if self.then and done.changed:
            yield self.then(done.changed)
        if left:
            yield ngettext(
                "%(count)s was skipped: %(reason)s, or locked at this moment.",
                "%(count)s were skipped: %(reason)s, or locked at this moment.",
                left,
            ) % {"count": localize(left), "reason": self.why_not}


def offered(jobs: JobQuerySet) -> list[Act]:
    """Return the acts that are for the one job among `jobs`, by the database's clock."""
    fits = {act.name: ExpressionWrapper(act.fits, BooleanField()) for act in ACTS.values()}
    found: Any = jobs.values(**fits).first()
    return [act for act in ACTS.values() if found and found[act.name]]


def record(
    request: HttpRequest,
    model: type[Model],
    whats: Iterable[Model | str],
    message: str,
    flag: int = CHANGE,
) -> None:
    """Leave a LogEntry for each: the user did this to a row, or to what is described."""
    LogEntry.objects.bulk_create(
        LogEntry(
            user_id=cast("int", request.user.pk),
            content_type=ContentType.objects.get_for_model(model),
            object_id=str(what.pk) if isinstance(what, Model) else None,
            object_repr=str(what)[:200],
            action_flag=flag,
            change_message=message,
            action_time=Now(),  # comparable with the times of jobs
        )
        for what in whats
    )


def _told(act: Act, request: HttpRequest) -> str:
    filters = request.GET.urlencode()
    return f"{act.name} ({filters})" if filters else act.name


def _run_now(jobs: JobQuerySet) -> int:
    """Make pending jobs due now by the database's clock, which no caller of `reschedule()` knows."""
    moved = lifecycle.move(jobs, "reschedule", run_at=Now())
    if moved:
        notify.wake(lifecycle.alias_of(jobs), notify.EVERY_QUEUE)
    return moved


ACTS = {
    act.name: act
    for act in (
        Act(
            "retry",
            _("Retry"),
            _("Retry selected jobs"),
            "retry_job",
            Q(status__in=[Status.FAILED, Status.CANCELLED]),
            pgettext_lazy("why a job was skipped", "not failed or cancelled"),
            lambda jobs: jobs.retry(),
        ),
        Act(
            "run_now",
            _("Run now"),
            _("Run selected jobs now"),
            "retry_job",
            Q(status=Status.PENDING, run_at__gt=Now()),
            pgettext_lazy("why a job was skipped", "not pending, due already"),
            _run_now,
            then=lambda jobs: ngettext(
                "It runs when a worker takes it, not while its queue is paused.",
                "They run when a worker takes them, not while their queue is paused.",
                jobs,
            ),
        ),
        Act(
            "cancel",
            pgettext_lazy("act on a job", "Cancel"),
            _("Cancel selected jobs"),
            "cancel_job",
            Q(status=Status.PENDING) | Q(status=Status.RUNNING, cancel_requested_at=None),
            pgettext_lazy("why a job was skipped", "finished, asked to stop before"),
            lambda jobs: jobs.cancel(),
        ),
        Act(
            "delete",
            _("Delete"),
            _("Delete selected jobs"),
            "delete_job",
            ~Q(status=Status.RUNNING),
            pgettext_lazy("why a job was skipped", "running"),
            lifecycle.delete,
            DELETION,
        ),
    )
}
