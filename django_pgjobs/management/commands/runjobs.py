"""`manage.py runjobs`: run a worker."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from psycopg import errors

from django_pgjobs import conf
from django_pgjobs.management import arguments
from django_pgjobs.management.signals import on_signals
from django_pgjobs.sessions import CONNECTION_ERRORS, in_transaction, reason
from django_pgjobs.worker import Worker, WorkerOptions


class Command(BaseCommand):
    """Parse the arguments, run a worker, turn signals into a clean stop."""

    help = (
        "Run jobs until SIGTERM or SIGINT: the running ones are finished, no new ones started. "
        "A second signal does not wait for them."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        queues = parser.add_mutually_exclusive_group()
        queues.add_argument(
            "--queues", type=arguments.queues, metavar="A,B", help="serve only these queues"
        )
        queues.add_argument(
            "--exclude",
            type=arguments.queues,
            metavar="A,B",
            default=[],
            help="serve every queue but these",
        )
        parser.add_argument(
            "--threads", type=arguments.threads, default=8, help="jobs at a time (default 8)"
        )
        parser.add_argument("--drain", action="store_true", help="exit when no job is due any more")
        parser.add_argument(
            "--poll",
            type=arguments.seconds,
            metavar="SECONDS",
            help="look for due jobs at least this often (default: PGJOBS['POLL'])",
        )
        parser.add_argument(
            "--shutdown-timeout",
            type=arguments.seconds_or_none,
            metavar="SECONDS",
            help="wait for running jobs at a stop (default: PGJOBS['SHUTDOWN_TIMEOUT'])",
        )
        parser.add_argument(
            "--database",
            metavar="ALIAS",
            help="the database of the jobs, if no router says it",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run the worker; exit with its status unless that is 0."""
        database = arguments.jobs_database(options["database"])
        if in_transaction(database):
            raise CommandError(
                "runjobs sees committed jobs only, and a transaction is open here. In a test use "
                "django_pgjobs.testing.drain(), or a TransactionTestCase."
            )
        settings, poll, wait = conf.get(), options["poll"], options["shutdown_timeout"]
        worker = Worker(
            WorkerOptions(
                database=database,
                queues=options["queues"],
                exclude=options["exclude"],
                threads=options["threads"],
                poll=settings.poll if poll is None else poll,
                shutdown_timeout=settings.shutdown_timeout if wait is None else wait,
                drain=options["drain"],
            )
        )
        if options["verbosity"]:
            served = ", ".join(options["queues"] or ["every queue"])
            self.stderr.write(f"Running jobs of {served} in {options['threads']} threads.")
        try:
            with on_signals(worker.stop):
                status = worker.run()
        except CONNECTION_ERRORS as error:
            raise CommandError(
                f"The database {database!r} cannot be reached: {reason(error)}."
            ) from error
        except (errors.UndefinedTable, errors.UndefinedColumn) as error:
            raise CommandError(f"Run manage.py migrate first: {reason(error)}.") from error
        if status:
            sys.exit(status)
