"""The questions of `pgjobs` about jobs: stats, list, show, explain. None needs handler code."""

from __future__ import annotations

import datetime
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.db.models import Count, Q, TextField
from django.db.models.functions import Cast, Now
from django.utils import timezone

from django_pgjobs import conf, explaining, masking, symptoms
from django_pgjobs.explanations import Explanation
from django_pgjobs.lifecycle import Status
from django_pgjobs.management import answers, arguments
from django_pgjobs.management.answers import NOTHING_FOUND, Answer
from django_pgjobs.models import Job, JobQuerySet, Worker
from django_pgjobs.queues import Depth, depths
from django_pgjobs.sessions import execute_on_django
from django_pgjobs.windows import WINDOW, Choice, by_index

_LARGE = ("payload", "result", "errors", "meta")
_LISTED = (
    *("id", "kind", "queue", "status", "priority", "attempts", "max_attempts", "run_at"),
    *("created_at", "locked_by", "finished_at", "last_error"),
)
_SHOWN = ("id", "kind", "queue", "status", "priority", "attempts", "run_at", "last_error")


def add_filters(parser: ArgumentParser) -> None:
    """Declare what chooses jobs."""
    statuses = [status.value for status in Status if status != Status.BLOCKED]
    parser.add_argument("--status", choices=statuses, help="only jobs of this status")
    for name, letter in (("queue", "Q"), ("kind", "K")):
        parser.add_argument(
            f"--{name}", type=arguments.chosen, metavar=letter, help=f"only jobs of this {name}"
        )


def add_id(parser: ArgumentParser) -> None:
    """Declare the id of a job."""
    parser.add_argument(
        "id", type=arguments.whole(1, arguments.LARGEST_ID), metavar="ID", help="of a job"
    )


def add_list(parser: ArgumentParser) -> None:
    """Declare the filters and how many."""
    add_filters(parser)
    arguments.add_limit(parser)


def stats(database: str, _options: dict[str, Any]) -> Answer:
    """Say what is in each queue, and how many workers there are."""
    [(now,)] = execute_on_django(database)(symptoms.CLOCK, {})
    found = [_figures(depth, now) for depth in depths(database)]
    lease = datetime.timedelta(seconds=conf.get().lease)
    silent, stopping = Q(heartbeat_at__lt=Now() - lease), Q(stopping_at__isnull=False)
    workers = (
        Worker.objects.using(database)
        .filter(died_at=None)
        .aggregate(
            living=Count("pk", filter=~silent & ~stopping),
            stopping=Count("pk", filter=~silent & stopping),
            silent=Count("pk", filter=silent),
        )
    )
    columns = ("queue", "due", "delayed", "running", "failed in 1 h", "oldest due", "paused")
    rows = (
        (
            *(one["queue"], *map(_counted, list(one.values())[1:5])),
            answers.span(one["oldest_due_seconds"]),
            one["paused_by"] or one["paused_at"],
        )
        for one in found
    )
    told = ", ".join(f"{n} {state}" for state, n in workers.items())
    text = f"{answers.table(columns, rows)}\n\nWorkers: {told}."
    return Answer({"queues": found, "workers": workers}, text)


def _figures(depth: Depth, now: float) -> dict[str, Any]:
    return {
        "queue": depth.name,
        # The server adds counts up to a numeric.
        "due": int(depth.due),
        "delayed": int(depth.delayed),
        "running": int(depth.running),
        "failed_in_last_hour": int(depth.failed),
        "oldest_due_seconds": None if depth.oldest is None else now - _seconds(depth.oldest),
        "paused_at": depth.paused_at,
        "paused_by": depth.paused_by or None,
    }


def _seconds(moment: datetime.datetime) -> float:
    aware = moment if timezone.is_aware(moment) else timezone.make_aware(moment)
    return aware.timestamp()


def _counted(number: int) -> str:
    return f"{WINDOW:,}+" if number > WINDOW else f"{number:,}"


def list_jobs(database: str, options: dict[str, Any]) -> Answer:
    """List jobs in the order of an index, as the admin does."""
    choice = Choice(options, {})
    limit = options["limit"]
    with by_index(database):
        found: Any = choice.listed(JobQuerySet(Job, using=database))
        jobs = list(found.values(*_LISTED)[: limit + 1])
    has_more, jobs = len(jobs) > limit, jobs[:limit]
    for job in jobs:
        job["last_error"] = job["last_error"].partition("\n")[0] or None
    text = answers.table(
        _SHOWN,
        ([_attempts(job) if name == "attempts" else job[name] for name in _SHOWN] for job in jobs),
    )
    if has_more:
        text += f"\n\nThere are more. See them with --limit, up to {WINDOW:,}."
    if choice.is_windowed:
        text += f"\n\nNo index serves these filters: {WINDOW:,} jobs were looked at, no more."
    return Answer({"jobs": jobs, "more": has_more, "windowed": choice.is_windowed}, text)


def _attempts(job: dict[str, Any]) -> str:
    return f"{job['attempts']}/{job['max_attempts']}"


def show(database: str, options: dict[str, Any]) -> Answer:
    """Show all that is stored of one job, with secrets masked."""
    texts = {f"{column}_text": Cast(column, TextField()) for column in _LARGE}
    names = [field.attname for field in Job._meta.concrete_fields]  # noqa: SLF001 -- Django's own API
    plain = [name for name in names if name not in _LARGE]
    jobs: Any = JobQuerySet(Job, using=database).filter(pk=options["id"])
    found = jobs.annotate(**texts).values(*plain, *texts).first()
    if found is None:
        return _gone(options)
    found["last_error"] = found["last_error"] or None
    read = {column: masking.masked(masking.read(found[f"{column}_text"])) for column in _LARGE}
    fields = {name: read[name] if name in read else found[name] for name in names}
    return Answer(fields, answers.record(fields))


def explain(database: str, options: dict[str, Any]) -> Answer:
    """Say why a job is not running."""
    found = explaining.explain(options["id"], database)
    if found.answer == "gone":
        return _gone(options)
    return Answer(_explained(options["id"], found), answers.printable(found.text))


def _gone(options: dict[str, Any]) -> Answer:
    """Tell people of an error, and programs in the document that they read."""
    if not options["json"]:
        raise CommandError(f"ID must be that of a job, got {options['id']}: there is none.")
    found = Explanation("gone")
    return Answer(_explained(options["id"], found), found.text, NOTHING_FOUND)


def _explained(job_id: int, found: Explanation) -> dict[str, Any]:
    return {"id": job_id, "answer": found.answer, "text": found.text, "facts": found.facts}
