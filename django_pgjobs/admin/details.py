"""What the page of one job shows, made readable: values, errors, and what happened when.

Invariant: everything stored is escaped, and values under keys that look secret are masked.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import NamedTuple

from django.conf import settings
from django.contrib import admin
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.formats import localize
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext, pgettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from django_pgjobs.exceptions import JobCancelled
from django_pgjobs.masking import masked
from django_pgjobs.models import Job, Worker
from django_pgjobs.options import EARLIEST, LATEST

NONE = "–"

_STOPPED = f"{JobCancelled.__module__}.{JobCancelled.__qualname__}"  # as `errors` has it


class Event(NamedTuple):
    """One line of the timeline."""

    at: datetime.datetime | None
    what: str
    detail: str = ""


def badge(job: Job) -> str:
    """The status as a word in a colour, with a sign for those who see none; and a request to stop."""
    word = format_html(
        '<span class="pgjobs-status pgjobs-{}">{}</span>', job.status, job.get_status_display()
    )
    if job.status == Job.Status.RUNNING and job.cancel_requested_at:
        return format_html('{} <span class="help">{}</span>', word, gettext("asked to stop"))
    return word


def timeline(job: Job) -> list[Event]:
    """Return what is known to have happened, the earliest first."""
    events = [Event(job.created_at, gettext("Enqueued"))]
    events += _failures(job)
    if job.locked_at:
        events.append(Event(job.locked_at, gettext("Claimed"), _worker(job.locked_by)))
    elif job.attempted_at:
        events.append(Event(job.attempted_at, gettext("Last attempt began")))
    if job.cancel_requested_at:
        events.append(Event(job.cancel_requested_at, gettext("Cancel requested")))
    if job.finished_at:
        events.append(Event(job.finished_at, capfirst(job.get_status_display())))
    known = sorted((e for e in events if e.at is not None), key=lambda e: e.at)  # type: ignore[arg-type,return-value]
    if job.status == Job.Status.PENDING:
        due = gettext("Due (attempt %(number)d)") % {"number": job.attempts + 1}
        known.append(Event(job.run_at, due))
    return known


def _failures(job: Job) -> Iterator[Event]:
    for error in job.errors:
        if isinstance(error, dict):
            number = {"number": error.get("attempt", "?")}
            what = gettext("Attempt %(number)s failed") % number
            if error.get("error") == _STOPPED:
                what = gettext("Attempt %(number)s stopped") % number
            yield Event(_moment(error.get("at")), what, str(error.get("worker", "")))


def _moment(at: object) -> datetime.datetime | None:
    """Read the time of an error, which plain SQL may have stored in any form."""
    try:
        moment = parse_datetime(at) if isinstance(at, str) else None
        if moment is None:
            return None
        aware = moment if timezone.is_aware(moment) else timezone.make_aware(moment)
        if not EARLIEST <= aware <= LATEST:  # in the reader's time zone it may be no time at all
            return None
        # Times with a zone and times without one cannot be sorted together.
        return aware if settings.USE_TZ else timezone.make_naive(aware)
    except (ValueError, OverflowError):  # well formed, and in a 13th month
        return None


def _here(moment: datetime.datetime) -> datetime.datetime:
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment


def _worker(pk: int | None) -> str:
    return str(Worker.objects.filter(pk=pk).first() or f"#{pk}") if pk else ""


def _json(value: object) -> str:
    if value is None:
        return NONE
    text = json.dumps(masked(value), ensure_ascii=False, indent=2)
    return render_to_string("admin/django_pgjobs/job/text.html", {"text": text})


@admin.display(description=_("status"))
def status(job: Job) -> str:
    """The status as a badge."""
    return badge(job)


@admin.display(description=_("attempts"))
def attempts(job: Job) -> str:
    """How many of how many."""
    return f"{job.attempts} / {job.max_attempts}"


@admin.display(description=pgettext_lazy("job", "progress"))
def progress(job: Job) -> str:
    """How far the handler said it was; plain SQL may have put anything there."""
    meta = job.meta if isinstance(job.meta, dict) else {}
    said = meta.get("progress")
    said = said if isinstance(said, dict) else {}
    fraction = said.get("fraction")
    if not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        return NONE
    at, text = _moment(said.get("at")), said.get("text")
    parts = [
        f"{localize(round(100 * fraction))} %",
        str(text or ""),
        localize(_here(at)) if at else "",
    ]
    if said.get("attempt") != job.attempts:
        parts.append(gettext("in an earlier attempt"))
    return ", ".join(filter(None, parts))


@admin.display(description=_("why"))
def why(job: Job) -> str:
    """Why it is not running, or what else is true of it."""
    return job.explain().told(lambda at: str(localize(_here(at))))


@admin.display(description=_("worker"))
def worker(job: Job) -> str:
    """The worker that runs it now."""
    return _worker(job.locked_by) or NONE


@admin.display(description=pgettext_lazy("job", "subject"))
def subject(job: Job) -> str:
    """The instance that the job is about."""
    return f"{job.subject_type}:{job.subject_id}" if job.subject_id else NONE


@admin.display(description=_("schedule"))
def schedule(job: Job) -> str:
    """The schedule that it comes from, and the tick."""
    meta = job.meta if isinstance(job.meta, dict) else {}
    name, tick = meta.get("schedule"), meta.get("tick")
    if not name:
        return NONE
    moment = _moment(tick)
    by_hand = pgettext("tick of a schedule", "by hand")
    return f"{name} ({(tick or by_hand) if moment is None else localize(_here(moment))})"


@admin.display(description=_("payload"))
def payload(job: Job) -> str:
    """The arguments."""
    return _json(job.payload)


@admin.display(description=_("result"))
def result(job: Job) -> str:
    """What the handler returned."""
    return _json(job.result)


@admin.display(description=_("errors"))
def errors(job: Job) -> str:
    """Every attempt's error, the latest first and open."""
    if not isinstance(job.errors, list):
        return str(job.errors)
    known = [
        # Plain SQL may have put anything there.
        {
            key: error.get(key) or ""
            for key in ("attempt", "error", "message", "traceback", "worker", "at")
        }
        | {"at": _moment(error.get("at")) or error.get("at") or ""}
        for error in reversed(job.errors)
        if isinstance(error, dict)
    ]
    if not known:
        return NONE
    return render_to_string("admin/django_pgjobs/job/errors.html", {"errors": known})


@admin.display(description=_("timeline"))
def history(job: Job) -> str:
    """What happened when."""
    return render_to_string("admin/django_pgjobs/job/timeline.html", {"events": timeline(job)})


FIELDS = (
    "kind", status, why, "queue", "priority", "run_at", attempts, progress, worker, subject, schedule, "created_at",
    "attempted_at", "finished_at", "unique_key", "concurrency_key", payload, result, errors, history,
)  # fmt: skip
FIELDSETS = (
    (
        None,
        {
            "fields": (
                "kind",
                (status, attempts, progress),
                why,
                ("queue", "priority"),
                subject,
                schedule,
            )
        },
    ),
    (_("Payload"), {"fields": (payload, result)}),
    (_("Errors"), {"fields": (errors,)}),
    (_("What happened"), {"fields": (history, worker)}),
    (
        _("Times and keys"),
        {
            "fields": (
                ("created_at", "run_at"),
                ("attempted_at", "finished_at"),
                ("unique_key", "concurrency_key"),
            )
        },
    ),
)
