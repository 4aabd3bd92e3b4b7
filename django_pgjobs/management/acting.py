"""The acts of `pgjobs`: retry and cancel jobs, pause and resume queues.

Invariant: the acts are the verbs of `JobQuerySet`, guarded row by row; jobs are named, or chosen by a
filter, or `--all` says that all are meant.
"""

from __future__ import annotations

import getpass
import os
import socket
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_pgjobs import queues
from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.lifecycle import MOVES, Status
from django_pgjobs.management import arguments
from django_pgjobs.management.answers import NOTHING_DONE, Answer
from django_pgjobs.management.asking import add_filters
from django_pgjobs.models import Job, JobQuerySet
from django_pgjobs.plurals import counted

_MOVES = {"retry": MOVES["retry_by_hand"], "cancel": MOVES["cancel"]}


def add_choice(parser: ArgumentParser) -> None:
    """Declare ids, filters, and the word that means all."""
    parser.add_argument(
        "ids",
        type=arguments.whole(1, arguments.LARGEST_ID),
        nargs="*",
        metavar="ID",
        help="of jobs; without ids, filters choose",
    )
    add_filters(parser)
    parser.add_argument("--all", action="store_true", help="all jobs that can be, without a filter")


def add_queue(parser: ArgumentParser) -> None:
    """Declare the name of a queue."""
    # Not "queue": call_command() would take the option of other verbs for this one.
    parser.add_argument("name", type=arguments.storable, metavar="Q", help="the name of a queue")


def retry(database: str, options: dict[str, Any]) -> Answer:
    """Give jobs that failed a new set of attempts; cancelled ones where they are named or asked for."""
    by_filter = Status.FAILED.value
    jobs, asked = _chosen("retry", database, options, by_filter)
    return _told("Retried", jobs.retry(), asked, "not failed or cancelled")


def cancel(database: str, options: dict[str, Any]) -> Answer:
    """Cancel pending jobs, and ask running ones to stop."""
    jobs, asked = _chosen("cancel", database, options, None)
    return _told("Cancelled, or asked to stop,", jobs.cancel(), asked, "finished")


def _chosen(
    verb: str, database: str, options: dict[str, Any], by_filter: str | None
) -> tuple[JobQuerySet, int]:
    """Return the jobs that are meant, and how many."""
    filters = {name: options[name] for name in ("status", "queue", "kind")}
    # An empty one, which only a call from Python can bring, chooses no job, and not all.
    given = {name: value for name, value in filters.items() if value is not None}
    ids = set(options["ids"])
    if not (given or ids or options["all"]):
        raise CommandError(
            f"{verb} must be told which jobs, got no ID and no filter. Name them, choose them by --status, "
            "--queue or --kind, or say --all.",
            returncode=2,
        )
    sources = sorted(_MOVES[verb].sources)
    # Any other would choose jobs that this verb leaves alone, and none besides.
    if filters["status"] and filters["status"] not in sources:
        raise CommandError(
            f"--status must be {' or '.join(sources)} for {verb}, got {filters['status']!r}. Choose one of "
            "them, or leave it out.",
            returncode=2,
        )
    if options["all"] and (given or ids):
        raise CommandError(
            f"--all must stand alone, got it with {'ids' if ids else 'filters'}. Leave one of them out.",
            returncode=2,
        )
    jobs = JobQuerySet(Job, using=database).filter(**given)
    if ids:
        return jobs.filter(pk__in=ids), len(ids)
    if by_filter and "status" not in given:
        jobs = jobs.filter(status=by_filter)
    jobs = jobs.filter(status__in=sources)
    return jobs, jobs.count()


def _told(what: str, done: int, asked: int, why_not: str) -> Answer:
    skipped = max(0, asked - done)
    text = f"{what} {counted(done, 'job')}."
    if skipped:
        text += f" Skipped {skipped:,}: {why_not}, not there, or locked at this moment."
    return Answer({"done": done, "skipped": skipped}, text, 0 if done else NOTHING_DONE)


def pause(database: str, options: dict[str, Any]) -> Answer:
    """Have no worker claim from a queue until it is resumed."""
    name = options["name"]
    try:
        changed = queues.pause(name, by=_who(), database=database)
    except InvalidOption as error:
        raise CommandError(str(error), returncode=2) from None
    return _switched(name, "is paused" if changed else "was paused already", changed=changed)


def resume(database: str, options: dict[str, Any]) -> Answer:
    """Let workers claim from a queue again."""
    name = options["name"]
    changed = queues.resume(name, database=database)
    return _switched(name, "goes on" if changed else "was not paused", changed=changed)


def _switched(name: str, what: str, *, changed: bool) -> Answer:
    return Answer({"queue": name, "changed": changed}, f"The queue {name!r} {what}.")


def _who() -> str:
    """Name the user of the operating system, as the admin names its own."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in containers
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
