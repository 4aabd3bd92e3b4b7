"""Which privileges the roles of a database need, and the SQL that gives them.

    owner      owns the tables and migrates: it is given nothing here
    producer   enqueues
    replacer   enqueues, also where a rule of uniqueness locks or changes the job that is there
    worker     runs `runjobs` and `reapjobs`, schedules included
    viewer     reads: the admin, `pgjobs stats`, `list`, `show`, `explain`
    operator   acts too: the admin with its acts, `pgjobs retry`, `cancel`, `pause`, `resume`

Invariant: grants, policies, what a worker asks for at its start and what an error advises are all made of
PRIVILEGES and POLICIES; a producer can read of the jobs of others that they are there, never what they are
about.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from django.db import ProgrammingError
from psycopg import errors

from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.gates import GATE
from django_pgjobs.statements import FIGURE, JOB, QUEUE, WORKER
from django_pgjobs.upkeep import SCHEDULE

TABLES = (JOB, WORKER, QUEUE, FIGURE, GATE, SCHEDULE)
COMMANDS = ("select", "insert", "update", "delete")
USAGE = "usage"  # of the sequence of the ids

_LONGEST = 63  # bytes of a name


class Privilege(NamedTuple):
    """One command on one table, or on some of its columns."""

    table: str
    command: str
    columns: tuple[str, ...] = ()
    schema: str = ""  # of a table that the search path need not lead to

    def __str__(self) -> str:
        """Say it as GRANT does."""
        if self.command == USAGE:
            return f"USAGE on the sequence of {self.table}.id"
        return f"{self.clause} on {self.name}"

    @property
    def name(self) -> str:
        """The table as people write it."""
        return f"{self.schema}.{self.table}" if self.schema else self.table

    @property
    def clause(self) -> str:
        """The part of a GRANT that stands before the table."""
        columns = f" ({', '.join(self.columns)})" if self.columns else ""
        return f"{self.command.upper()}{columns}"


class Policy(NamedTuple):
    """The rows that a role sees, or may leave behind, by row security."""

    table: str
    command: str
    using: str = ""
    check: str = ""


# What an enqueue writes, and what its RETURNING and its ON CONFLICT read.
_REPLACED = (
    *("payload", "queue", "priority", "run_at", "subject_type", "subject_id", "meta"),
    "concurrency_key",
)
READ_BY_PRODUCERS = ("id", "created_at", "run_at", "unique_key")
_PRODUCER = (
    Privilege(JOB, "insert", ("id", "kind", "max_attempts", *_REPLACED, "unique_key")),
    Privilege(JOB, "select", READ_BY_PRODUCERS),
    Privilege(JOB, USAGE),
)

PRIVILEGES: Mapping[str, tuple[Privilege, ...]] = {
    "producer": _PRODUCER,
    "replacer": (
        _PRODUCER[0],
        # The server counts what ON CONFLICT writes from `excluded` as read.
        Privilege(
            JOB,
            "select",
            tuple(dict.fromkeys((*READ_BY_PRODUCERS, "status", "finished_at", *_REPLACED))),
        ),
        Privilege(JOB, "update", (*_REPLACED, "unique_key")),
        _PRODUCER[2],
    ),
    "worker": (
        *(Privilege(JOB, command) for command in (*COMMANDS, USAGE)),
        *(Privilege(WORKER, command) for command in COMMANDS),
        Privilege(QUEUE, "select"),
        *(Privilege(FIGURE, command) for command in COMMANDS),
        *(Privilege(GATE, command) for command in COMMANDS),
        *(Privilege(SCHEDULE, command) for command in ("select", "insert", "update")),
    ),
    "viewer": tuple(Privilege(table, "select") for table in TABLES),
    "operator": (
        *(Privilege(JOB, command) for command in COMMANDS),
        Privilege(WORKER, "select"),
        *(Privilege(QUEUE, command) for command in ("select", "insert", "update")),
        Privilege(FIGURE, "select"),
        Privilege(GATE, "select"),
        *(Privilege(SCHEDULE, command) for command in COMMANDS),
    ),
}

POLICIES: Mapping[str, tuple[Policy, ...]] = {
    "producer": (
        Policy(JOB, "insert", check="status = 'pending'"),
        # Its new rows, and whoever holds a key.
        Policy(JOB, "select", using="finished_at is null or unique_key is not null"),
    ),
    "replacer": (
        Policy(JOB, "insert", check="status = 'pending'"),
        # A job whose period is over is seen once more without its key.
        Policy(JOB, "select", using="true"),
        Policy(
            JOB,
            "update",
            using="status = 'pending' or unique_key is not null",
            check="status = 'pending' or unique_key is null",
        ),
    ),
    "worker": tuple(Policy(table, "all", using="true", check="true") for table in TABLES),
    "viewer": tuple(Policy(table, "select", using="true") for table in TABLES),
    # What it may do with the rows of a table, its privileges say.
    "operator": tuple(Policy(table, "all", using="true", check="true") for table in TABLES),
}


class Place(NamedTuple):
    """Where the tables are: what `symptoms.PLACE_OF_TABLES` answers."""

    schema: str
    sequence: str  # as SQL writes it

    def named(self, table: str) -> str:
        """Return the table as SQL writes it."""
        return f"{quoted(self.schema)}.{quoted(table)}"


Roles = Mapping[str, Sequence[str]]  # the names of roles, by what they are


def check_roles(given: Mapping[str, str | Sequence[str] | None]) -> dict[str, list[str]]:
    """Return lists of names, without what has none.

    Raises:
        InvalidOption: a name is none that a role can have, or there is none at all.

    """
    roles = {
        part: [
            _checked(part, name) for name in (names if isinstance(names, list | tuple) else [names])
        ]
        for part, names in given.items()
        if names is not None
    }
    roles = {part: names for part, names in roles.items() if names}
    if not roles:
        raise InvalidOption(
            f"{', '.join(given)} must name at least one role, got none. Give the name of a role of "
            "the server to one of them."
        )
    return roles


def grants(roles: Roles, place: Place) -> Iterator[str]:
    """Yield the statements that give the roles what they need. Given again, they change nothing."""
    yield from _of_privileges("GRANT", "TO", roles, place)


def revokes(roles: Roles, place: Place) -> Iterator[str]:
    """Yield the statements that take it back: all but the schema, which others may need too."""
    yield from _of_privileges("REVOKE", "FROM", roles, place)


def _of_privileges(verb: str, to: str, roles: Roles, place: Place) -> Iterator[str]:
    for part, names in roles.items():
        who = f"{to} {', '.join(map(quoted, names))}"
        if verb == "GRANT":
            yield f"GRANT USAGE ON SCHEMA {quoted(place.schema)} {who}"
        for table in TABLES:
            needed = [one for one in PRIVILEGES[part] if one.table == table]
            if clauses := ", ".join(one.clause for one in needed if one.command != USAGE):
                yield f"{verb} {clauses} ON TABLE {place.named(table)} {who}"
            if any(one.command == USAGE for one in needed):
                yield f"{verb} USAGE ON SEQUENCE {place.sequence} {who}"


def enabling(roles: Roles, place: Place) -> Iterator[str]:
    """Yield the statements that hide the tables from all but their owner and these roles, and those of before."""
    for part, names in roles.items():
        for one in POLICIES[part]:
            table = place.named(one.table)
            using = f" USING ({one.using})" if one.using else ""
            check = f" WITH CHECK ({one.check})" if one.check else ""
            for name in names:
                policy = policy_name(part, one.command, name)
                yield f"DROP POLICY IF EXISTS {policy} ON {table}"
                yield (
                    f"CREATE POLICY {policy} ON {table} FOR {one.command.upper()} TO {quoted(name)}"
                    f"{using}{check}"
                )
    yield _revoke_what_has_no_rows(place)
    # At the end: nobody is to be without a policy meanwhile.
    for table in TABLES:
        yield f"ALTER TABLE {place.named(table)} ENABLE ROW LEVEL SECURITY"


def _revoke_what_has_no_rows(place: Place) -> str:
    """Return the statement that takes from all but the owner what row security says nothing of.

    A role that was granted ALL could empty a table, of which it sees no row, or turn back its ids.
    """
    tables = ", ".join(f"'{place.named(table)}'::regclass" for table in TABLES)
    statement = f"""DO $$ DECLARE one record; BEGIN
    FOR one IN
        SELECT string_agg(DISTINCT privilege_type, ', ')
            || CASE relkind WHEN 'S' THEN ' ON SEQUENCE ' ELSE ' ON TABLE ' END || c.oid::regclass || ' FROM '
            || CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END AS privileges
        FROM pg_class c CROSS JOIN aclexplode(relacl)
        WHERE grantee <> relowner AND (
            c.oid IN ({tables}) AND privilege_type IN ('TRUNCATE', 'REFERENCES', 'TRIGGER', 'MAINTAIN')
            OR relkind = 'S' AND privilege_type = 'UPDATE' AND EXISTS (SELECT FROM pg_depend
                WHERE classid = 'pg_class'::regclass AND objid = c.oid AND refobjid IN ({tables})))
        GROUP BY c.oid, relkind, grantee
    LOOP EXECUTE 'REVOKE ' || one.privileges || ' CASCADE'; END LOOP; END $$"""
    return " ".join(statement.split())  # each is printed on a line


def disabling(roles: Roles, place: Place) -> Iterator[str]:
    """Yield the statements that undo it. A table that has other policies stays hidden."""
    for part, names in roles.items():
        for one in POLICIES[part]:
            for name in names:
                policy = policy_name(part, one.command, name)
                yield f"DROP POLICY IF EXISTS {policy} ON {place.named(one.table)}"
    for table in TABLES:
        named = place.named(table)
        yield (
            f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = '{named}'::regclass) "
            f"THEN ALTER TABLE {named} DISABLE ROW LEVEL SECURITY; END IF; END $$"
        )


def policy_name(part: str, command: str, role: str) -> str:
    """Return the name of a policy: one for each role, so that others are given and taken apart from it."""
    # The name of a role alone may be as long as one of a policy.
    digest = hashlib.blake2b(role.encode(), digest_size=4).hexdigest()
    return f"pgjobs_{part}_{command}_{digest}"


def explain(error: ProgrammingError, part: str) -> None:
    """Add to what the server refused what a role needs for it. The error stays what it is."""
    cause = error.__cause__
    if isinstance(cause, errors.UndefinedTable):
        advice = (
            "Run manage.py migrate. Where that is done, the role lacks USAGE on the schema of the "
            f"tables: as their owner, run what this prints: manage.py pgjobs grants --{part} ROLE"
        )
    elif isinstance(cause, errors.InsufficientPrivilege):
        needed = ", ".join(map(str, PRIVILEGES[part]))
        one = f"an {part}" if part == "operator" else f"a {part}"
        advice = (
            f"The role of this connection must have what {one} needs: {needed}; and where row security "
            f"is on, {one}'s policies. As the owner of the tables, run what this prints, with "
            f"--row-security for the policies: manage.py pgjobs grants --{part} ROLE"
        )
    else:
        return
    error.add_note(advice)


@contextmanager
def explained(part: str) -> Iterator[None]:
    """`explain()` what the server refuses in this block, or in what this decorates."""
    try:
        yield
    except ProgrammingError as error:
        explain(error, part)
        raise


def quoted(name: str) -> str:
    """Return a name as SQL writes it, whatever is in it."""
    return '"{}"'.format(name.replace('"', '""'))


def _checked(part: str, name: object) -> str:
    if (
        isinstance(name, str)
        and "\0" not in name
        and 0 < len(name.encode(errors="replace")) <= _LONGEST
    ):
        return name
    raise InvalidOption(
        f"{part} must be the name of a role, of 1 to {_LONGEST} bytes, or a list of names, got "
        f"{name!r:.80}. Give a role of the server."
    )
