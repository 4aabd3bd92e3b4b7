"""`manage.py runjobs`: run a worker."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError
from psycopg import errors

from django_pgjobs import conf
from django_pgjobs.children import CHILD
from django_pgjobs.claims import Served
from django_pgjobs.companions import NOBODY, Companion
from django_pgjobs.exceptions import PgmqMissing, PrivilegeMissing, QueueMissing
from django_pgjobs.launch import run_alone, run_child
from django_pgjobs.limited_claims import declared
from django_pgjobs.management import arguments
from django_pgjobs.management.signals import on_signals
from django_pgjobs.sessions import CONNECTION_ERRORS, SCHEMA_ERRORS, in_transaction, reason
from django_pgjobs.supervisor import Supervisor
from django_pgjobs.worker_options import WorkerOptions


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
            "--pgmq",
            type=arguments.queues,
            metavar="A,B",
            help="consume only these queues of pgmq, and without --queues run no jobs",
        )
        parser.add_argument(
            "--threads",
            type=arguments.whole(1, 1_000),
            default=8,
            help="jobs at a time in each process (default 8)",
        )
        parser.add_argument(
            "--async-concurrency",
            type=arguments.whole(1, 10_000),
            default=100,
            metavar="N",
            help="jobs of async handlers at a time in each process, beside those (default 100)",
        )
        parser.add_argument(
            "--processes",
            type=arguments.whole(0, 256),
            default=1,
            help="worker processes, with a supervisor over them; 0: work in this process (default 1)",
        )
        parser.add_argument(
            "--max-jobs",
            type=arguments.whole(1, 10**9),
            metavar="N",
            help="replace a process after so many jobs and messages of pgmq; with --processes 0 or --drain, exit",
        )
        parser.add_argument(
            "--max-rss",
            type=arguments.whole(1, 10**7),
            metavar="MB",
            help="replace a process that uses more memory than this",
        )
        parser.add_argument("--drain", action="store_true", help="exit when no job is due any more")
        parser.add_argument(
            "--poll",
            type=arguments.seconds,
            metavar="SECONDS",
            help="look for due jobs at least this often (default: PGJOBS['POLL'])",
        )
        parser.add_argument(
            "--no-notify",
            action="store_true",
            help="do not listen for wake-ups, only poll",
        )
        parser.add_argument(
            "--shutdown-timeout",
            type=arguments.seconds_or_none,
            metavar="SECONDS",
            help="wait for running jobs at a stop (default: PGJOBS['SHUTDOWN_TIMEOUT'])",
        )
        parser.add_argument(
            "--claim",
            choices=["lease", "transaction"],
            help="how every job is claimed: by a lease, or in the transaction that it runs in "
            "(default: as PGJOBS['QUEUES'] says of its queue, else by lease)",
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
                "django_pgjobs.testing.drain(), or a TransactionTestCase (with pytest: transactional_db)."
            )
        settings, poll, wait = conf.get(), options["poll"], options["shutdown_timeout"]
        alone = options["pgmq"] is not None and options["queues"] is None
        chosen = WorkerOptions(
            database=database,
            queues=[] if alone else options["queues"],
            exclude=options["exclude"],
            threads=options["threads"],
            async_concurrency=options["async_concurrency"],
            poll=settings.poll if poll is None else poll,
            notify=settings.notify and not options["no_notify"],
            shutdown_timeout=settings.shutdown_timeout if wait is None else wait,
            drain=options["drain"],
            max_jobs=options["max_jobs"],
            max_rss=options["max_rss"] and options["max_rss"] << 20,
            claim=options["claim"],
        )
        if chosen.claim == "transaction" and (
            limited := declared(Served(chosen.queues, chosen.exclude))
        ):
            raise CommandError(
                f"--claim must be lease where there are limits, got transaction for "
                f"{', '.join(limited)}. Leave these queues out with --queues or --exclude.",
                returncode=2,
            )
        try:
            status = self._run(chosen, options)
        except (*CONNECTION_ERRORS, errors.ReadOnlySqlTransaction) as error:
            raise CommandError(
                f"The database {database!r} cannot be reached: {reason(error)}."
            ) from error
        except (PrivilegeMissing, QueueMissing, PgmqMissing) as error:
            raise CommandError(str(error)) from error
        except SCHEMA_ERRORS as error:
            raise CommandError(f"Run manage.py migrate first: {reason(error)}.") from error
        if status:
            sys.exit(status)

    def _run(self, chosen: WorkerOptions, options: dict[str, Any]) -> int:
        crew = _crew(chosen, options["pgmq"])
        if descriptors := os.environ.pop(CHILD, None):  # not for what a handler starts
            return run_child(chosen, descriptors, crew)
        processes = options["processes"] if vars(self).get("_called_from_command_line") else 0
        if options["verbosity"]:
            jobs = chosen.queues != [] and ", ".join(chosen.queues or ["every queue"])
            served = " and ".join(
                [f"jobs of {jobs}"] * bool(jobs) + [str(crew)] * (crew is not NOBODY)
            )
            places = {0: "this process", 1: "one worker process"}
            where = places.get(processes, f"{processes} worker processes")
            self.stderr.write(f"Running {served} in {where}.")
        if not processes:
            return run_alone(chosen, on_signals, crew)
        supervisor = Supervisor(chosen, processes, crew)
        with on_signals(supervisor.stop, supervisor.wake):
            return supervisor.run()


def _crew(chosen: WorkerOptions, names: list[str] | None) -> Companion:
    """Return the consumers of pgmq that run here: these, or all where no queue of jobs was named either."""
    if not apps.is_installed("django_pgjobs.pgmq"):
        if names is None:
            return NOBODY
        raise CommandError(
            "--pgmq must not be given without pgmq. Add 'django_pgjobs.pgmq' to INSTALLED_APPS.",
            returncode=2,
        )
    from django_pgjobs.pgmq.consumers import consumers, named  # noqa: PLC0415 -- an app of its own
    from django_pgjobs.pgmq.crew import Crew  # noqa: PLC0415 -- likewise

    if names is None:
        crew = [] if chosen.queues is not None else list(consumers().values())
        return Crew(crew, chosen) if crew else NOBODY
    found = {name: named(name, chosen.database) for name in names}
    if unknown := [name for name in names if not found[name]]:
        known = ", ".join(sorted({queue.name for queue in consumers()})) or "none"
        raise CommandError(
            f"--pgmq must name queues that have a consumer, got {', '.join(unknown)}. Those that have are: "
            f"{known}.",
            returncode=2,
        )
    return Crew([one for these in found.values() for one in these], chosen)
