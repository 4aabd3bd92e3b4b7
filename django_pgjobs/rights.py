"""Ask the server what the role of a connection lacks, to be a worker, say.

Invariant: it reads the catalogue alone, so that any role may ask, and tells what is missing before anything
is done: a worker that is hidden from the jobs says so instead of idling.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from django_pgjobs import symptoms
from django_pgjobs.exceptions import InvalidOption, PrivilegeMissing
from django_pgjobs.roles import PRIVILEGES, Place, Privilege, Roles
from django_pgjobs.sessions import Execute

_FEW = 5  # columns


class Standing(NamedTuple):
    """Who is connected, and what is missing, in the words of GRANT."""

    role: str
    missing: list[str]
    by_row: bool  # whether row security hides something


def standing(execute: Execute, part: str) -> Standing:
    """Compare what the role has with what the part needs."""
    return compare(execute, PRIVILEGES[part])


def compare(execute: Execute, needed: Sequence[Privilege]) -> Standing:
    """Compare what the role has with what is needed, on tables that are there."""
    asked = [
        {
            "position": n,
            "schema": one.schema or None,
            "name": one.table,
            "command": one.command,
            "columns": one.columns or None,
        }
        for n, one in enumerate(needed)
    ]
    rows = execute(symptoms.RIGHTS, {"needed": json.dumps(asked)})
    missing: list[str] = []
    unseen: dict[str, list[str]] = {}  # commands without a policy, by table
    for position, _, schema, whole, lacking, hidden in rows:
        one = needed[position]
        if schema is not None:
            missing.append(f"USAGE on the schema {schema}")
        if whole or lacking:
            # Of a whole table not each column is told.
            by_column = lacking and not whole and (one.columns or len(lacking) <= _FEW)
            columns = tuple(name for name in one.columns or lacking or () if name in lacking)
            missing.append(str(one._replace(columns=columns) if by_column else one))
        if hidden:
            unseen.setdefault(one.name, []).append(one.command.upper())
    missing += [f"policy for {', '.join(of)} on {table}" for table, of in unseen.items()]
    # A schema is missing for all of its tables.
    return Standing(rows[0][1], list(dict.fromkeys(missing)), bool(unseen))


def demand(execute: Execute, part: str, alias: str) -> None:
    """Demand that the role of this connection can be what it is to be.

    Raises:
        PrivilegeMissing: it lacks privileges, or row security hides tables from it.

    """
    role, missing, by_row = standing(execute, part)
    if missing:
        raise PrivilegeMissing.of(role, part, alias, missing, by_row=by_row)


def place_of_tables(execute: Execute) -> Place:
    """Return where the tables are; raise what the server says where there are none."""
    [row] = execute(symptoms.PLACE_OF_TABLES, {})
    return Place(*row)


def known(execute: Execute, roles: Roles) -> dict[str, list[str]]:
    """Return those of the roles that the server has."""
    names = sorted({name for given in roles.values() for name in given})
    there = {name for (name,) in execute(symptoms.ROLES, {"names": names})}
    return {part: [name for name in given if name in there] for part, given in roles.items()}


def refuse_unknown(execute: Execute, roles: Roles) -> None:
    """Demand that the server has these roles.

    Raises:
        InvalidOption: there is one that it has not.

    """
    there = known(execute, roles)
    for part, given in roles.items():
        for name in given:
            if name not in there[part]:
                raise InvalidOption(
                    f"{part} must be a role of the server, got {name!r}, which it has not. Create it "
                    "before: CREATE ROLE."
                )
