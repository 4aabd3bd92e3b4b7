"""A command of several verbs, each of which gives one answer: `pgjobs` and `pgmq`.

Invariant: the exit status is the answer's, 1 for what the server refuses, and 2 for wrong usage.
"""

from __future__ import annotations

import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from django.core.management.base import BaseCommand, CommandError
from django.db import ProgrammingError
from django.utils import translation
from psycopg import errors

from django_pgjobs import rights
from django_pgjobs.exceptions import PgmqMissing, PrivilegeMissing, QueueMissing
from django_pgjobs.management.answers import Answer
from django_pgjobs.sessions import DATABASE_ERRORS, SCHEMA_ERRORS, execute_on_django, reason


class Verb(NamedTuple):
    """One thing that a command does."""

    answer: Callable[[str, dict[str, Any]], Answer]
    help: str
    declare: Callable[[ArgumentParser], None] = lambda _parser: None
    part: str = ""  # what a role must be for it; nothing where the owner alone is given it


class VerbCommand(BaseCommand):
    """Parse the arguments, and print the answer."""

    verbs: ClassVar[Mapping[str, Verb]]
    database_help: ClassVar[str]

    def database(self, alias: str | None) -> str:
        """Return the database that is meant by `--database`, or else by the routers."""
        raise NotImplementedError

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare a parser for each verb."""
        verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
        for name, verb in self.verbs.items():
            own = verbs.add_parser(
                name, help=verb.help, description=f"{verb.help[0].upper()}{verb.help[1:]}."
            )
            verb.declare(own)
            own.add_argument("--json", action="store_true", help="print JSON, for programs")
            own.add_argument("--database", metavar="ALIAS", help=self.database_help)
            _accept_options_of_django(own)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the answer; exit with its status unless that is 0."""
        database = self.database(options["database"])
        try:
            with translation.override(None):  # as the commands of Django speak
                answer = self.verbs[options["verb"]].answer(database, options)
        except (QueueMissing, PgmqMissing) as error:
            raise CommandError(str(error)) from error
        except DATABASE_ERRORS as error:
            raise CommandError(_told(error, database, self.verbs[options["verb"]].part)) from error
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
