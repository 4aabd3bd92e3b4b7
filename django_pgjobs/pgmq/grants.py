"""Which privileges on pgmq a role needs that does not own it, as SQL.

Invariant: pgmq's functions run with the rights of who calls them, so these are all that there is; who creates and
drops queues must own them. What a consumer asks for at its start and what an error advises are made of needs(),
as are the grants.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from psycopg import errors

from django_pgjobs.roles import Privilege, quoted

SCHEMA = "pgmq"
THROTTLE = "notify_insert_throttle"  # where pgmq remembers when it has notified of a message
PARTS = ("producer", "worker", "viewer", "operator")


def needs(part: str, queue: str) -> list[Privilege]:
    """Return what a role needs to send to a queue, to consume it, to look at it, or to act on its messages."""
    messages, archive = f"q_{queue}", f"a_{queue}"
    looks = [
        Privilege("meta", "select", schema=SCHEMA),
        Privilege(messages, "select", schema=SCHEMA),
        Privilege(f"{messages}_msg_id_seq", "select", schema=SCHEMA),  # the last id, for figures
    ]
    return {
        "producer": [
            Privilege(messages, "insert", schema=SCHEMA),
            Privilege(messages, "select", ("msg_id",), SCHEMA),
        ],
        "worker": [
            *(Privilege(messages, each, schema=SCHEMA) for each in ("select", "update", "delete")),
            Privilege(archive, "insert", schema=SCHEMA),
            Privilege(archive, "select", ("msg_id",), SCHEMA),
        ],
        "viewer": looks,
        "operator": [
            *looks,
            *(
                Privilege(messages, each, schema=SCHEMA)
                for each in ("insert", "update", "delete", "truncate")
            ),
        ],
    }[part]


# What pgmq's trigger does in the name of who sends, where it is to notify.
NOTIFIES = [
    Privilege(THROTTLE, "select", schema=SCHEMA),
    Privilege(THROTTLE, "update", ("last_notified_at",), SCHEMA),
]


def granting(
    roles: Mapping[str, Sequence[str]], needed: Mapping[str, Iterable[Privilege]]
) -> Iterator[str]:
    """Yield the statements that give the roles of each part what is needed. Given again, they change nothing."""
    for part, names in roles.items():
        to = f"TO {', '.join(map(quoted, names))}"
        yield f"GRANT USAGE ON SCHEMA {SCHEMA} {to}"
        clauses: dict[str, list[str]] = {}
        for one in dict.fromkeys(needed[part]):
            clauses.setdefault(one.table, []).append(one.clause)
        for table, of in clauses.items():
            yield f"GRANT {', '.join(of)} ON TABLE {SCHEMA}.{quoted(table)} {to}"


def advice(error: BaseException | None, part: str, queue: str) -> str:
    """Return what to add to what the server refused about a queue; nothing where that helps in no way."""
    if not isinstance(error, errors.InsufficientPrivilege):
        return ""
    if not part:
        return "Who creates, changes or drops queues must own them, and pgmq's schema. Do this as their owner."
    of, needed = "all queues", ""
    if queue:
        of, needed = f"the queue {queue!r}", ", ".join(["", *map(str, needs(part, queue))])
    article = "an" if part == "operator" else "a"
    return (
        f"The role of this connection must have what {article} {part} of {of} needs: USAGE on the schema "
        f"{SCHEMA}{needed}. As the owner of pgmq, run what this prints: "
        f"{printing(part, 'ROLE', [queue] if queue else [])}"
    )


def tables_of(queues: Iterable[str]) -> list[str]:
    """Return the names of the tables of queues: their messages, and their archives."""
    return [f"{letter}_{queue}" for queue in queues for letter in "qa"]


def printing(part: str, role: str, queues: Sequence[str]) -> str:
    """Return the command that prints the grants."""
    return shlex.join(["manage.py", "pgmq", "grants", *queues, f"--{part}", role])
