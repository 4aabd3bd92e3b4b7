"""`manage.py reapjobs`: recover the jobs of dead workers, prune old finished ones."""

from __future__ import annotations

from argparse import ArgumentParser
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_pgjobs import reaper, rights
from django_pgjobs.exceptions import PrivilegeMissing
from django_pgjobs.mailbox import Mailbox
from django_pgjobs.management import arguments
from django_pgjobs.management.signals import on_signals
from django_pgjobs.plurals import counted
from django_pgjobs.reaper import Counts
from django_pgjobs.sessions import (
    DATABASE_ERRORS,
    SCHEMA_ERRORS,
    Execute,
    Session,
    execute_on_django,
    in_transaction,
    reason,
    refused,
)


class Command(BaseCommand):
    """Parse the arguments and reap, once or in a loop."""

    help = (
        "Bring back the jobs of dead workers and delete finished jobs that are old enough. Workers "
        "do the same while they run; this is for when none may be running. Needs no handler code."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--interval",
            type=arguments.seconds,
            metavar="SECONDS",
            help="go on, once every so often, until SIGTERM or SIGINT (default: once, then exit)",
        )
        parser.add_argument(
            "--older-than",
            type=arguments.seconds_or_none,
            metavar="SECONDS",
            help="the age of a heartbeat that means death (default: PGJOBS['LEASE'])",
        )
        parser.add_argument("--no-prune", action="store_true", help="delete no finished jobs")
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
        parser.add_argument(
            "--database",
            metavar="ALIAS",
            help="the database of the jobs, if no router says it",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Reap once, or until a signal."""
        database = arguments.jobs_database(options["database"])
        # In a test's transaction its jobs can be seen on Django's connection only.
        session = None if in_transaction(database) else Session(database)
        execute = (
            partial(session.execute, patience=reaper.PATIENCE)
            if session
            else execute_on_django(database)
        )
        stopped = Mailbox[None]()
        try:
            with on_signals(lambda: stopped.put(None)):
                self._until_stopped(session, execute, options, stopped)
        except PrivilegeMissing as error:
            raise CommandError(str(error)) from error
        except SCHEMA_ERRORS as error:
            raise CommandError(f"Run manage.py migrate first: {reason(error)}.") from error
        finally:
            if session:
                session.close()

    def _until_stopped(
        self,
        session: Session | None,
        execute: Execute,
        options: dict[str, Any],
        stopped: Mailbox[None],
    ) -> None:
        allowed = False
        while True:
            try:
                if not allowed:
                    part = "viewer" if options["dry_run"] else "worker"
                    rights.demand(execute, part, arguments.jobs_database(options["database"]))
                    allowed = True
                self._once(execute, options, stopped)
            except SCHEMA_ERRORS:
                raise
            except DATABASE_ERRORS as error:
                what = "refuses a statement" if refused(error) else "cannot be reached"
                told = f"The database {what}: {reason(error)}."
                if not options["interval"]:
                    raise CommandError(told) from error
                self.stderr.write(told)
                if session:
                    session.close()  # a new one may find another server, or another table
            if not options["interval"]:
                return
            if stopped.take(options["interval"]):
                return

    def _once(self, execute: Execute, options: dict[str, Any], stopped: Mailbox[None]) -> None:
        choice = {"older_than": options["older_than"], "prune": not options["no_prune"]}
        if options["dry_run"]:
            self._tell("Would record", "reap", "prune", reaper.preview(execute, **choice))
            return
        total = Counts()
        more = True
        while more and not stopped:
            counts = reaper.run(execute, **choice)
            total = Counts(*map(sum, zip(total, counts, strict=True)))
            more = counts.more
        if options["verbosity"] and (any(total) or not options["interval"]):
            self._tell("Recorded", "reaped", "pruned", total)

    def _tell(self, recorded: str, reaped: str, pruned: str, counts: Counts) -> None:
        self.stdout.write(
            f"{recorded} the death of {counted(counts.workers, 'worker')}, "
            f"{reaped} {counted(counts.jobs, 'job')}, {pruned} {counted(counts.pruned, 'finished job')}."
        )
