"""The verb `grants`: print the SQL that gives roles what they need.

Invariant: it changes nothing. Who owns the tables runs what it prints, with psql or in a migration.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django_pgjobs import rights, roles
from django_pgjobs.management import arguments
from django_pgjobs.management.answers import Answer
from django_pgjobs.sessions import execute_on_django

_HELP = {
    "producer": "enqueue",
    "replacer": "enqueue, also by rules of uniqueness that lock or change the job that is there",
    "worker": "run runjobs and reapjobs",
    "viewer": "read",
    "operator": "read, and to act in the admin and by pgjobs",
}


def add_roles(parser: ArgumentParser) -> None:
    """Declare an option for what each role is to do."""
    arguments.add_roles(parser, _HELP)
    parser.add_argument(
        "--queue",
        type=arguments.chosen,
        action="append",
        default=[],
        metavar="NAME",
        help="a queue of pgmq on the same database, for the same roles; may be given again",
    )
    parser.add_argument(
        "--row-security",
        action="store_true",
        help="print the policies too that hide the tables from all other roles",
    )


def grants(database: str, options: dict[str, Any]) -> Answer:
    """Print the statements, one a line."""
    chosen = arguments.roles_of(options, _HELP)
    place = rights.place_of_tables(execute_on_django(database))
    statements = list(roles.grants(chosen, place))
    if options["queue"]:
        statements += _of_queues(database, chosen, options["queue"])
    if options["row_security"]:
        statements += roles.enabling(chosen, place)
    text = "\n".join(f"{one};" for one in statements)
    # A policy that is made anew must not be missed meanwhile.
    return Answer(
        {"statements": statements}, f"BEGIN;\n{text}\nCOMMIT;" if options["row_security"] else text
    )


def _of_queues(database: str, chosen: roles.Roles, queues: list[str]) -> Iterator[str]:
    from django_pgjobs.pgmq import readiness  # noqa: PLC0415 -- only where pgmq is used

    parts = {part: names for part, names in chosen.items() if part != "replacer"}
    if senders := [*chosen.get("producer", []), *chosen.get("replacer", [])]:
        parts["producer"] = list(dict.fromkeys(senders))
    return readiness.granting(execute_on_django(database), database, parts, queues)
