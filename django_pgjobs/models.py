"""The table of jobs, and by name the other tables, each of which has a module of its own.

Invariant: every column of `Job` has a database default and every impossible state is refused by a
CHECK, so that plain SQL is as safe a producer as Python. Only partial indexes stand beside the
primary key: each non-partial one would cost three entries in the life of every job.
"""

from __future__ import annotations

import datetime
from typing import Any, ClassVar, Self

from asgiref.sync import sync_to_async
from django.db import ProgrammingError, models, router
from django.db.models import Case, F, Func, Q, Value, When
from django.db.models.functions import Greatest, Least, Now
from django.db.models.lookups import Exact, GreaterThan, GreaterThanOrEqual, LessThanOrEqual
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from django_pgjobs import cancelling, explaining, lifecycle, notify, roles, subjects, waiting
from django_pgjobs.cancelling import CancelReply
from django_pgjobs.explanations import Explanation
from django_pgjobs.gatehouse import Gate
from django_pgjobs.lifecycle import FINAL, Status
from django_pgjobs.options import EARLIEST, HIGHEST_PRIORITY, LATEST, LOWEST_PRIORITY, check_run_at
from django_pgjobs.pauses import Queue
from django_pgjobs.roster import Worker
from django_pgjobs.tally import Figure
from django_pgjobs.timetable import Schedule

# Django looks for the models of an app here.
__all__ = ["Figure", "Gate", "Job", "JobQuerySet", "Queue", "Schedule", "Worker"]

DEFAULT_QUEUE = "default"
DEFAULT_MAX_ATTEMPTS = 5

_TIMES = (
    "attempted_at",
    "cancel_requested_at",
    "created_at",
    "finished_at",
    "locked_at",
    "run_at",
)


def _same(this: Q, that: Q) -> Q:
    """Say that both hold or neither does."""
    return Q(Exact(this, that))


def _among(*statuses: Status) -> Func:
    """List statuses as one constant: the server would fold that of `status__in` for every statement."""
    return Func(template=f"'{{{','.join(statuses)}}}'::text[]", output_field=models.TextField())


def _status_by_times() -> Q:
    """Say which statuses a row can have, by its times: none where it is locked and finished."""
    possible = Case(
        When(
            locked_at__isnull=True,
            then=Case(
                When(finished_at__isnull=True, then=_among(Status.PENDING, Status.BLOCKED)),
                default=_among(*sorted(FINAL)),
            ),
        ),
        When(finished_at__isnull=True, then=_among(Status.RUNNING)),
        default=_among(),
    )
    among = {"arg_joiner": " = any(", "template": "%(expressions)s)"}
    return Q(Func(F("status"), possible, output_field=models.BooleanField(), **among))


class JobQuerySet(models.QuerySet["Job"]):
    """Jobs by status, and the verbs that move them."""

    def pending(self) -> Self:
        """Choose those that wait for a worker, for the first attempt or a further one."""
        return self.filter(status=Status.PENDING)

    def due(self) -> Self:
        """Choose pending jobs whose time has come, by the database's clock."""
        return self.pending().filter(run_at__lte=Now())

    def delayed(self) -> Self:
        """Choose pending jobs whose time is still to come."""
        return self.pending().filter(run_at__gt=Now())

    def running(self) -> Self:
        """Choose those that a worker has claimed and not settled yet."""
        return self.filter(status=Status.RUNNING)

    def done(self) -> Self:
        """Choose those that finished without an error."""
        return self.filter(status=Status.DONE)

    def failed(self) -> Self:
        """Choose those given up: no attempt is left, or the error was permanent."""
        return self.filter(status=Status.FAILED)

    def cancelled(self) -> Self:
        """Choose those cancelled before they were done."""
        return self.filter(status=Status.CANCELLED)

    def for_subject(self, subject: models.Model) -> Self:
        """Choose those enqueued with `.using(subject=...)` about this model instance.

        The instance need not be saved, so that `Order(pk=7)` finds the jobs of an order that is gone.

        Raises:
            InvalidOption: it is no model instance with a primary key.

        """
        subject_type, subject_id = subjects.identify(subject)
        return self.filter(subject_type=subject_type, subject_id=subject_id)

    @roles.explained("operator")
    def retry(self) -> int:
        """Give failed and cancelled jobs a new set of attempts, due now; return how many.

        `attempts` goes on counting and `max_attempts` is raised by as much as the job had. Jobs of
        another status, and rows locked by another transaction, are left alone.
        """
        return self._waking(lifecycle.move(self, "retry_by_hand"))

    @roles.explained("operator")
    def cancel(self) -> CancelReply:
        """Cancel pending jobs and ask running ones to stop; return how many of both.

        A running job ends as `cancelled` unless its handler completes all the same. Finished jobs,
        and rows locked by another transaction, are left alone. The number has attributes: `at_once`,
        `requested` and `skipped`.
        """
        return cancelling.cancel(self)

    @roles.explained("operator")
    def reschedule(self, run_at: datetime.datetime) -> int:
        """Set the time of pending jobs; return how many.

        `run_at` is an aware datetime (naive only with USE_TZ=False); one in the past means due now.
        """
        return self._waking(lifecycle.move(self, "reschedule", run_at=check_run_at(run_at)))

    async def aretry(self) -> int:
        """`retry()` for async code."""
        return await sync_to_async(self.retry)()

    async def acancel(self) -> CancelReply:
        """`cancel()` for async code."""
        return await sync_to_async(self.cancel)()

    async def areschedule(self, run_at: datetime.datetime) -> int:
        """`reschedule(run_at)` for async code."""
        return await sync_to_async(self.reschedule)(run_at)

    def _waking(self, moved: int) -> int:
        """Wake every worker: the queues are not known here, nor whether the new time is past."""
        if moved:
            notify.wake(lifecycle.alias_of(self), notify.EVERY_QUEUE)
        return moved


class Job(models.Model):
    """One job: the call of one handler with one payload."""

    Status = Status

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(_("kind"), max_length=200)
    queue = models.CharField(_("queue"), max_length=63, db_default=DEFAULT_QUEUE)
    payload = models.JSONField(_("payload"), db_default=Value({}, models.JSONField()))
    status = models.CharField(
        _("status"), max_length=10, choices=Status, db_default=Status.PENDING.value
    )
    priority = models.SmallIntegerField(_("priority"), db_default=0)
    run_at = models.DateTimeField(_("run at"), db_default=Now())
    attempts = models.IntegerField(_("attempts"), db_default=0)
    max_attempts = models.IntegerField(_("maximum of attempts"), db_default=DEFAULT_MAX_ATTEMPTS)
    attempts_before = models.IntegerField(
        _("attempts before the last retry by hand"),
        db_default=0,
        help_text=_("The retry policy counts from here."),
    )
    claims = models.IntegerField(
        pgettext_lazy("job", "claims"),
        db_default=0,
        help_text=_(
            "Rises by one at each claim and never falls: with the worker, a claim's token."
        ),
    )
    locked_at = models.DateTimeField(_("locked at"), null=True, blank=True)
    locked_by = models.BigIntegerField(
        _("locked by"), null=True, blank=True, help_text=_("The id of the worker.")
    )
    last_error = models.TextField(_("last error"), db_default="")
    errors = models.JSONField(_("errors"), db_default=Value([], models.JSONField()))
    result = models.JSONField(_("result"), null=True, blank=True)
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    attempted_at = models.DateTimeField(_("last attempted at"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)
    unique_key = models.CharField(_("unique key"), max_length=100, null=True, blank=True)  # noqa: DJ001 -- NULL: no key
    concurrency_key = models.CharField(  # noqa: DJ001 -- NULL: no key
        _("concurrency key"), max_length=200, null=True, blank=True
    )
    cancel_requested_at = models.DateTimeField(_("cancel requested at"), null=True, blank=True)
    subject_type = models.CharField(_("subject type"), max_length=200, null=True, blank=True)  # noqa: DJ001 -- NULL: no subject
    subject_id = models.CharField(_("subject id"), max_length=200, null=True, blank=True)  # noqa: DJ001 -- NULL: no subject
    meta = models.JSONField(_("meta"), db_default=Value({}, models.JSONField()))

    objects = JobQuerySet.as_manager()

    # Columns that the migrations of this release add. What has to work on the tables of the release before, as
    # enqueueing has, reads them only where they are asked for.
    added: ClassVar[tuple[str, ...]] = ()

    existed = False  # whether an enqueue found this job, by its unique key, instead of making one

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        permissions = (
            ("retry_job", "Can retry jobs and run them now"),
            ("cancel_job", "Can cancel jobs"),
        )
        indexes = (
            models.Index(
                F("queue"),
                F("priority").desc(),
                F("run_at"),
                F("id"),
                name="pgjobs_job_claim",
                condition=Q(status="pending", concurrency_key__isnull=True),
            ),
            models.Index(
                F("queue"),
                F("concurrency_key"),
                F("priority").desc(),
                F("run_at"),
                F("id"),
                name="pgjobs_job_keyed",
                condition=Q(status="pending", concurrency_key__isnull=False),
            ),
            # The condition has words of its own, by which the other statements do not know it.
            models.Index(
                "queue",
                "run_at",
                name="pgjobs_job_keyed_due",
                condition=Q(status="pending", concurrency_key__gt=""),
            ),
            models.Index(
                "concurrency_key",
                "id",
                name="pgjobs_job_order",
                condition=Q(status="pending", concurrency_key__isnull=False),
            ),
            models.Index(
                "queue", "locked_by", name="pgjobs_job_running", condition=Q(status="running")
            ),
            models.Index(
                "concurrency_key",
                name="pgjobs_job_running_keyed",
                condition=Q(status="running", concurrency_key__isnull=False),
            ),
            models.Index(
                "status",
                "finished_at",
                name="pgjobs_job_finished",
                condition=Q(finished_at__isnull=False),
            ),
            models.Index(
                "subject_type",
                "subject_id",
                "id",
                name="pgjobs_job_subject",
                condition=Q(subject_id__isnull=False),
            ),
        )
        constraints = (
            models.UniqueConstraint(
                "unique_key",
                name="pgjobs_job_unique_key",
                condition=Q(unique_key__isnull=False),
            ),
            # The server reads the text of each of them anew for every statement that writes a row, half of
            # its work for a single enqueue: what is said once and shortly makes that cheaper.
            models.CheckConstraint(
                name="pgjobs_job_status",
                condition=_status_by_times()
                & _same(Q(locked_at__isnull=True), Q(locked_by__isnull=True)),
            ),
            models.CheckConstraint(
                name="pgjobs_job_priority",
                condition=Q(priority__range=(LOWEST_PRIORITY, HIGHEST_PRIORITY)),
            ),
            models.CheckConstraint(
                name="pgjobs_job_times",  # a NULL passes
                condition=Q(GreaterThanOrEqual(Least(*_TIMES), EARLIEST))
                & Q(LessThanOrEqual(Greatest(*_TIMES), LATEST)),
            ),
            models.CheckConstraint(
                name="pgjobs_job_attempts",
                condition=Q(GreaterThanOrEqual(Least("attempts", "attempts_before", "claims"), 0))
                & Q(max_attempts__gte=1),
            ),
            models.CheckConstraint(
                name="pgjobs_job_names",
                condition=Q(GreaterThan(Least("kind", "queue", "concurrency_key"), Value(""))),
            ),
            models.CheckConstraint(
                name="pgjobs_job_json",
                condition=Q(payload__contains={}, meta__contains={}, errors__contains=[]),
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} #{self.pk}"

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        """Read the columns anew, or those that were left out, as Django does it; say what a role lacks."""
        try:
            super().refresh_from_db(*args, **kwargs)
        except ProgrammingError as error:
            roles.explain(error, "viewer")
            raise

    def retry(self) -> int:
        """`Job.objects.retry()` on this job alone: 1, or 0 where its status does not allow it."""
        return self._row().retry()

    def cancel(self) -> CancelReply:
        """`Job.objects.cancel()` on this job alone: 1, or 0 where it has finished already."""
        return self._row().cancel()

    def reschedule(self, run_at: datetime.datetime) -> int:
        """`Job.objects.reschedule(run_at)` on this job alone: 1, or 0 where it is not pending."""
        return self._row().reschedule(run_at)

    def wait(self, timeout: float | datetime.timedelta | None = None) -> Self:
        """Wait until the job is final, then return it with its columns read anew.

        `timeout` is a timedelta or a number of seconds, None for ever. To be called outside of any
        transaction. It asks again and again: 50 times a second at first, once a second in the end.

        Raises:
            WaitTimeout: the job is not final yet.
            WaitInTransaction: a transaction is open, by which the job may not be visible to workers.
            InvalidOption: `timeout` is none.
            Job.DoesNotExist: the row is gone.

        """
        return waiting.wait(self, timeout)

    async def await_(self, timeout: float | datetime.timedelta | None = None) -> Self:  # noqa: ASYNC109 -- as wait() has it
        """`wait()` for async code."""
        return await waiting.await_(self, timeout)

    def explain(self) -> Explanation:
        """Say why it is not running, as its row stands in the database now."""
        return explaining.explain(self.pk, self._state.db or router.db_for_write(type(self)))

    async def aretry(self) -> int:
        """`retry()` for async code."""
        return await self._row().aretry()

    async def acancel(self) -> CancelReply:
        """`cancel()` for async code."""
        return await self._row().acancel()

    async def areschedule(self, run_at: datetime.datetime) -> int:
        """`reschedule(run_at)` for async code."""
        return await self._row().areschedule(run_at)

    async def aexplain(self) -> Explanation:
        """`explain()` for async code."""
        return await sync_to_async(self.explain)()

    def _row(self) -> JobQuerySet:
        return JobQuerySet(type(self), using=self._state.db).filter(pk=self.pk)
