"""The command `pgmq`: count queues, look at their messages and dead letters, redrive and purge them.

Invariant: looking reads no message, so that nobody else waits for one; what is deleted for good is asked
about first, unless `--no-input` says not to.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any, ClassVar

from django.core.management.base import CommandError

from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.management import answers, arguments
from django_pgjobs.management.answers import NOTHING_DONE, NOTHING_FOUND, Answer
from django_pgjobs.management.verbs import Verb, VerbCommand
from django_pgjobs.pgmq import peeks, queues, readiness
from django_pgjobs.pgmq.dead_letters import DeadLetters, check_rate
from django_pgjobs.pgmq.names import check_name
from django_pgjobs.pgmq.queues import Queue
from django_pgjobs.plurals import counted
from django_pgjobs.sessions import execute_on_django

_COLUMNS = ("id", "reads", "enqueued", "comes from", "reads there", "reason", "message")
_ROLES = {
    "producer": "send messages",
    "worker": "consume them",
    "viewer": "look at them, in the admin too",
    "operator": "look, redrive and purge",
}


def _name(text: str) -> str:
    try:
        return check_name(text)
    except InvalidOption as error:
        raise ArgumentTypeError(str(error)) from None


def _rate(text: str) -> float:
    try:
        return check_rate(float(text.removesuffix("/s")))
    except InvalidOption as error:
        raise ArgumentTypeError(str(error)) from None
    except ValueError:
        raise ArgumentTypeError(
            f"must be a number of messages a second such as 10 or 0.5/s, got {text!r}"
        ) from None


def _add_queue(parser: ArgumentParser) -> None:
    parser.add_argument("queue", type=_name, metavar="QUEUE", help="the name of a queue")


def _add_any_queue(parser: ArgumentParser) -> None:
    parser.add_argument("queue", type=_name, metavar="QUEUE", nargs="?", help="only this queue")


def _add_page(parser: ArgumentParser) -> None:
    _add_queue(parser)
    arguments.add_limit(parser)
    parser.add_argument(
        "--after",
        type=arguments.whole(0, arguments.LARGEST_ID),
        default=0,
        metavar="ID",
        help="go on behind the message of this id",
    )


def _add_message(parser: ArgumentParser) -> None:
    _add_queue(parser)
    parser.add_argument(
        "id", type=arguments.whole(1, arguments.LARGEST_ID), metavar="ID", help="of a message"
    )


def _add_ids(parser: ArgumentParser) -> None:
    _add_queue(parser)
    parser.add_argument(
        "--ids", type=arguments.ids, metavar="IDS", help="only these, such as 1,2 (default all)"
    )


def _add_redrive(parser: ArgumentParser) -> None:
    _add_ids(parser)
    parser.add_argument(
        "--to", type=_name, metavar="QUEUE", help="into this queue, wherever they come from"
    )
    parser.add_argument(
        "--limit",
        type=arguments.whole(1, 2**31 - 1),
        metavar="N",
        help="how many at most, the oldest first (default all)",
    )
    parser.add_argument(
        "--rate", type=_rate, metavar="N/s", help="so many are seen a second (default all at once)"
    )


def _add_purge(parser: ArgumentParser) -> None:
    _add_ids(parser)
    parser.add_argument(
        "--noinput", "--no-input", action="store_true", dest="no_input", help="do not ask"
    )


def metrics(database: str, options: dict[str, Any]) -> Answer:
    """Count what is in the queues."""
    found = peeks.figures(database, options["queue"] or "")
    columns = ("queue", "length", "visible", "oldest", "newest", "total", "archive")
    rows = (
        (
            one.queue,
            _counted(one.length),
            _counted(one.visible),
            answers.span(one.oldest_age),
            answers.span(one.newest_age),
            _counted(one.total),
            _bytes(one.archive_bytes),
        )
        for one in found
    )
    return Answer(
        {"queues": [dataclasses.asdict(one) for one in found]}, answers.table(columns, rows)
    )


def list_messages(database: str, options: dict[str, Any]) -> Answer:
    """List messages, the oldest first, without reading them."""
    found, has_more = peeks.page(
        Queue(options["queue"], database), options["limit"], after=options["after"]
    )
    rows = (
        (
            *(one.id, one.read_ct, one.enqueued_at, one.comes_from, one.reads_there),
            (one.reason or "").partition("\n")[0],
            _short(one),
        )
        for one in found
    )
    text = answers.table(_COLUMNS, rows)
    if has_more:
        text += f"\n\nThere are more. See them with --after {found[-1].id}."
    return Answer({"messages": [_data(one) for one in found], "more": has_more}, text)


def show(database: str, options: dict[str, Any]) -> Answer:
    """Show all of one message, with secrets masked."""
    queue, message_id = options["queue"], options["id"]
    found = peeks.one(Queue(queue, database), message_id)
    if found is None:
        said = (
            f"ID must be that of a message of the queue {queue!r}, got {message_id}: there is none."
        )
        if not options["json"]:
            raise CommandError(said)
        return Answer({"id": message_id, "answer": "gone", "text": said}, said, NOTHING_FOUND)
    data = _data(found)
    return Answer(data, answers.record(data))


def redrive(database: str, options: dict[str, Any]) -> Answer:
    """Send dead letters back to where they come from, or any messages to one queue."""
    letters, ids, limit = DeadLetters(options["queue"], database), options["ids"], options["limit"]
    asked = letters.queue.metrics().length if ids is None else len(ids)
    asked = asked if limit is None else min(asked, limit)
    try:
        done = len(letters.redrive(ids, rate=options["rate"], into=options["to"], limit=limit))
    except InvalidOption as error:  # what only a call from Python can bring
        raise CommandError(str(error), returncode=2) from None
    why_not = "not there, from no queue that exists, or locked at this moment"
    return _told("Redrove", done, asked, why_not)


def purge(database: str, options: dict[str, Any]) -> Answer:
    """Delete messages for good."""
    queue, ids = Queue(options["queue"], database), options["ids"]
    asked = queue.metrics().length if ids is None else len(ids)
    if not options["no_input"]:
        _confirm(f"Delete {counted(asked, 'message')} of the queue {queue.name!r} for good?")
    done = queue.purge() if ids is None else len(queue.delete(ids))
    return _told("Deleted", done, asked, "not there")


def _confirm(question: str) -> None:
    """Go on if somebody says yes. Asked on stderr, since stdout may be a program's."""
    sys.stderr.write(f"{question} Type 'yes' to go on: ")
    sys.stderr.flush()
    said = sys.stdin.readline()
    if not said:
        raise CommandError(
            "--no-input must be given where nobody can answer. Nothing was deleted.", returncode=2
        )
    if said.strip() != "yes":
        raise CommandError("Nothing was deleted.")


def _told(what: str, done: int, asked: int, why_not: str) -> Answer:
    skipped = max(0, asked - done)
    text = f"{what} {counted(done, 'message')}."
    if skipped:
        text += f" Skipped {skipped:,}: {why_not}."
    return Answer({"done": done, "skipped": skipped}, text, 0 if done else NOTHING_DONE)


def _data(peek: peeks.Peek) -> dict[str, Any]:
    return dataclasses.asdict(peek)


def _short(peek: peeks.Peek) -> str:
    if not peek.is_whole:
        return f"({peek.size:,} bytes, too large for a list)"
    return json.dumps(peek.message, ensure_ascii=False)


def _counted(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _bytes(number: int | None) -> str:
    return "-" if number is None else f"{number / 1024:,.0f} kB"


def _add_roles(parser: ArgumentParser) -> None:
    parser.add_argument(
        "queue", type=_name, metavar="QUEUE", nargs="*", help="only these queues (default all)"
    )
    arguments.add_roles(parser, _ROLES)


def print_grants(database: str, options: dict[str, Any]) -> Answer:
    """Print the statements, one a line."""
    chosen = arguments.roles_of(options, _ROLES)
    names = options["queue"] or [one.queue_name for one in queues.list_queues(database)]
    statements = list(readiness.granting(execute_on_django(database), database, chosen, names))
    return Answer({"statements": statements}, "\n".join(f"{one};" for one in statements))


VERBS = {
    "metrics": Verb(metrics, "how many messages are in each queue, and how old", _add_any_queue),
    "list": Verb(list_messages, "messages or dead letters, without reading them", _add_page),
    "show": Verb(show, "all of one message, secrets masked", _add_message),
    "redrive": Verb(redrive, "send dead letters back to where they come from", _add_redrive),
    "purge": Verb(purge, "delete messages for good", _add_purge),
    "grants": Verb(print_grants, "print the SQL that gives roles what they need", _add_roles),
}


class Command(VerbCommand):
    """Count, look, redrive, purge."""

    help = "Look after the message queues of pgmq and their dead letters."
    verbs: ClassVar = VERBS
    database_help = "the database of pgmq, if no router says it"

    def database(self, alias: str | None) -> str:
        """Return the database of pgmq."""
        return arguments.database(queues.database(alias))
