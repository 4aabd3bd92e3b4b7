"""`pgjobs import-tasks`: take over what waits in django-tasks-db."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.db import router

from django_pgjobs import task_rows
from django_pgjobs.management import answers
from django_pgjobs.management.answers import FOUND, Answer
from django_pgjobs.models import Job
from django_pgjobs.plurals import counted


def add_options(parser: ArgumentParser) -> None:
    """Declare for which backend, and whether it is meant."""
    parser.add_argument(
        "--backend",
        metavar="NAME",
        help="the key in TASKS of the backend to enqueue with (default: the one that each row names)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")


def import_tasks(database: str, options: dict[str, Any]) -> Answer:
    """Make jobs of the tasks that wait; the status is 1 where some cannot be carried over."""
    there = task_rows.database()
    if there is None:
        raise CommandError(
            f"{task_rows.APP} must be in INSTALLED_APPS, got an app that is not. Leave it there until "
            "nothing waits in it."
        )
    jobs = router.db_for_write(Job)  # where a task is enqueued, whatever --database says
    if not jobs == there == database:
        raise CommandError(
            f"The rows of {task_rows.APP} must be in the database of the jobs, {jobs!r}, got "
            f"{there!r}: no transaction spans both. Let its own workers finish what waits."
        )
    try:
        found = task_rows.carry_over(database, options["backend"], dry_run=options["dry_run"])
    except task_rows.NotCarried as error:
        raise CommandError(str(error), returncode=2) from error
    data = {
        "dry_run": options["dry_run"],
        # The jobs of a dry run are none.
        "carried": [
            {"row": row, "job": None if options["dry_run"] else job} for row, job in found.ids
        ],
        "jobs": found.jobs,
        "left": [one._asdict() for one in found.left],
        "held": found.held,
        "unknown": [{"status": status, "rows": rows} for status, rows in found.unknown.items()],
    }
    status = FOUND if found.left or found.unknown else 0
    return Answer(data, _told(found, dry_run=options["dry_run"]), status)


def _told(found: task_rows.Carried, *, dry_run: bool) -> str:
    done = "Would carry over" if dry_run else "Carried over"
    lines = [f"{done} {counted(len(found.ids), 'task')}, as {counted(found.jobs, 'job')}."]
    if found.held:
        held = counted(found.held, "more task")
        lines.append(f"{held}: taken by old workers meanwhile, or locked.")
    lines += [
        f"A status must be READY, RUNNING, FAILED or SUCCESSFUL, got {status!r} in "
        f"{counted(rows, 'row')}, which stay. Apply all migrations of {task_rows.APP}, and run this again."
        for status, rows in found.unknown.items()
    ]
    if found.left:
        lines += ["", "These stay where they are:", ""]
        lines += [
            f"{counted(one.rows, 'row')} of {one.task!r}, as {one.example}: {one.reason}"
            for one in found.left
        ]
    return "\n".join(map(answers.printable, "\n".join(lines).split("\n")))
