"""`manage.py pgjobs`: ask about jobs, act on them, and examine what they run on."""

from __future__ import annotations

import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable
from typing import Any, NamedTuple

from django.core.management.base import BaseCommand, CommandError
from django.db import ProgrammingError
from django.utils import translation
from psycopg import errors

from django_pgjobs import rights
from django_pgjobs.exceptions import PrivilegeMissing
from django_pgjobs.management import acting, arguments, asking, examining, granting, importing
from django_pgjobs.management.answers import Answer
from django_pgjobs.sessions import DATABASE_ERRORS, SCHEMA_ERRORS, execute_on_django, reason


class _Verb(NamedTuple):
    """One thing that the command does."""

    answer: Callable[[str, dict[str, Any]], Answer]
    help: str
    declare: Callable[[ArgumentParser], None] = lambda _parser: None
    part: str = (
        "viewer"  # what a role must be to ask or do it; nothing where the owner alone is given it
    )


VERBS = {
    "stats": _Verb(asking.stats, "what is in each queue, and how many workers there are"),
    "list": _Verb(asking.list_jobs, "jobs, by status, queue and kind", asking.add_list),
    "show": _Verb(asking.show, "all that is stored of one job, secrets masked", asking.add_id),
    "explain": _Verb(asking.explain, "why a job is not running", asking.add_id),
    "retry": _Verb(acting.retry, "give jobs a new set of attempts", acting.add_choice, "worker"),
    "cancel": _Verb(
        acting.cancel, "cancel jobs, ask running ones to stop", acting.add_choice, "worker"
    ),
    "pause": _Verb(acting.pause, "have no worker claim from a queue", acting.add_queue, ""),
    "resume": _Verb(acting.resume, "let workers claim from it again", acting.add_queue, ""),
    "check": _Verb(examining.check, "whether this code can run every waiting job"),
    "doctor": _Verb(
        examining.examine, "what makes jobs slow, late or lost, and what to do", examining.add_level
    ),
    "grants": _Verb(
        granting.grants, "print the SQL that gives roles what they need", granting.add_roles
    ),
    "import-tasks": _Verb(
        importing.import_tasks,
        "make jobs of the tasks that wait in django-tasks-db",
        importing.add_options,
        "",
    ),
}


class Command(BaseCommand):
    """Parse the arguments, and print the answer."""

    help = "Ask about jobs, act on them, and examine what they run on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare a parser for each verb."""
        verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        for name, verb in VERBS.items():
            own = verbs.add_parser(
                name, help=verb.help, description=f"{verb.help[0].upper()}{verb.help[1:]}."
            )
            verb.declare(own)
            own.add_argument("--json", action="store_true", help="print JSON, for programs")
            own.add_argument(
                "--database",
                metavar="ALIAS",
                help="the database of the jobs, if no router says it",
            )
            _accept_options_of_django(own)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the answer; exit with its status unless that is 0."""
        database = arguments.jobs_database(options["database"])
        try:
            with translation.override(None):  # as the commands of Django speak
                answer = VERBS[options["verb"]].answer(database, options)
        except DATABASE_ERRORS as error:
            raise CommandError(_told(error, database, VERBS[options["verb"]].part)) from error
        self.stdout.write(answer.written(as_json=options["json"]))
        if answer.status:
            sys.exit(answer.status)


def _accept_options_of_django(parser: ArgumentParser) -> None:
    """Take them behind the verb too, where people write them; before it they are documented."""
    for option in ("--settings", "--pythonpath"):
        parser.add_argument(option, default=SUPPRESS, help=SUPPRESS)
    parser.add_argument(
        "-v", "--verbosity", type=int, choices=range(4), default=SUPPRESS, help=SUPPRESS
    )
    for flag in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
        parser.add_argument(flag, action="store_true", default=SUPPRESS, help=SUPPRESS)


def _told(error: Exception, database: str, part: str) -> str:
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    if isinstance(cause, SCHEMA_ERRORS):
        return f"Run manage.py migrate first: {reason(cause)}."
    if isinstance(cause, errors.InsufficientPrivilege):
        said = f"The database {database!r} refuses a statement: {reason(cause)}."
        try:
            if part:
                rights.demand(execute_on_django(database), part, database)
        except PrivilegeMissing as missing:
            return f"{said} {missing}"
        except DATABASE_ERRORS:  # a transaction is open, and over
            return f"{said} As the owner of the tables, run what this prints: manage.py pgjobs grants --{part} ROLE"
        return f"{said} Have the owner of the tables grant it, or do this as the owner."
    if isinstance(error, ProgrammingError):
        return f"The database {database!r} refuses a statement: {reason(cause)}."
    return f"The database {database!r} cannot be asked: {reason(cause)}."
