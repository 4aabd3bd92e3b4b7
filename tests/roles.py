"""Roles of the tests' server, with what the product gives them and not more."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from django_pgjobs import rights, roles
from django_pgjobs.roles import Privilege
from django_pgjobs.sessions import execute_on_django

execute = execute_on_django("default")


class Role:
    """A role that exists until its transaction is rolled back, or until it is dropped."""

    def __init__(self, *parts: str, row_security: bool = False) -> None:
        # Roles belong to the server, which other test processes share.
        self.name = f"pgjobs_{'_'.join(parts) or 'nobody'}_{secrets.token_hex(4)}"
        self.parts = {part: [self.name] for part in parts}
        self.place = rights.place_of_tables(execute)
        sql(f"create role {self.name}", *roles.grants(self.parts, self.place))
        if row_security:
            sql(*roles.enabling(self.parts, self.place))

    @contextmanager
    def assumed(self) -> Iterator[None]:
        """Be this role on Django's connection."""
        sql(f"set role {self.name}")
        try:
            yield
        finally:
            sql("reset role")

    @contextmanager
    def without(self, privilege: Privilege) -> Iterator[None]:
        """Take one privilege away for a while."""
        where = privilege.clause, f"table {privilege.table}"
        if privilege.command == roles.USAGE:
            where = "usage", f"sequence {self.place.sequence}"
        what = "{} on {}".format(*where)
        sql(f"revoke {what} from {self.name}")
        try:
            yield
        finally:
            sql(f"grant {what} to {self.name}")

    def drop(self) -> None:
        """Undo all of it, where it was committed."""
        sql(
            *roles.disabling(self.parts, self.place),
            f"drop owned by {self.name}",
            f"drop role {self.name}",
        )


def sql(*statements: str) -> None:
    for statement in statements:
        execute(statement, {})


def each(part: str) -> list[Privilege]:
    """Every privilege of a part, those on columns one by one."""
    return [
        privilege._replace(columns=columns)
        for privilege in roles.PRIVILEGES[part]
        for columns in [(one,) for one in privilege.columns] or [()]
    ]
