"""Migration operations: give roles what they need, and hide the tables of jobs from all others.

Invariant: reversed, each takes back what it gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import OperationCategory

from django_pgjobs import rights, roles
from django_pgjobs.operations.base import OnJobs
from django_pgjobs.roles import Place, Roles
from django_pgjobs.sessions import Execute, Params, Rows

_Names = str | Sequence[str] | None


class _OfRoles(OnJobs):
    """Gives something to roles."""

    category = OperationCategory.SQL

    def __init__(
        self,
        *,
        producer: _Names = None,
        replacer: _Names = None,
        worker: _Names = None,
        viewer: _Names = None,
        operator: _Names = None,
    ) -> None:
        """Check the names."""
        self.roles = roles.check_roles(
            {
                "producer": producer,
                "replacer": replacer,
                "worker": worker,
                "viewer": viewer,
                "operator": operator,
            }
        )

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return what writes it into a file."""
        return type(self).__qualname__, [], dict(self.roles)

    def forwards(self, editor: BaseDatabaseSchemaEditor) -> None:
        """Do it."""
        execute = _execute_on(editor)
        rights.refuse_unknown(execute, self.roles)
        self._run(editor, self.doing(self.roles, rights.place_of_tables(execute)))

    def backwards(self, editor: BaseDatabaseSchemaEditor) -> None:
        """Undo it."""
        execute = _execute_on(editor)
        # A role that was dropped meanwhile has nothing any more.
        left = {part: names for part, names in rights.known(execute, self.roles).items() if names}
        self._run(editor, self.undoing(left, rights.place_of_tables(execute)))

    def doing(self, given: Roles, place: Place) -> Iterator[str]:
        """Yield the statements that do it."""
        raise NotImplementedError

    def undoing(self, given: Roles, place: Place) -> Iterator[str]:
        """Yield the statements that undo it."""
        raise NotImplementedError

    def _run(self, editor: BaseDatabaseSchemaEditor, statements: Iterable[str]) -> None:
        for statement in statements:
            editor.execute(statement, params=None)

    @property
    def _named(self) -> str:
        return ", ".join(name for names in self.roles.values() for name in names)


class GrantRoles(_OfRoles):
    """Give roles what they need, in a migration that depends on `("django_pgjobs", "0001_initial")`.

    Each of `producer`, `replacer`, `worker`, `viewer` and `operator` is the name of a role, or a list. Reversed, it takes
    the privileges back, those too that the role had before.

    Raises:
        InvalidOption: a name is none that a role can have; or, as it runs, the server has no such role.

    """

    def doing(self, given: Roles, place: Place) -> Iterator[str]:
        """Grant."""
        return roles.grants(given, place)

    def undoing(self, given: Roles, place: Place) -> Iterator[str]:
        """Revoke."""
        return roles.revokes(given, place)

    def describe(self) -> str:
        """Say what it does."""
        return f"Grant what they need for jobs to {self._named}"

    @property
    def migration_name_fragment(self) -> str:
        """What makemigrations calls it."""
        return "grant_roles_of_jobs"


class EnableRowLevelSecurity(_OfRoles):
    """Hide the tables of jobs from every role but these and their owner, whatever else is granted.

    As `GrantRoles`, which it needs besides: a policy gives no privilege. The owner, superusers and roles with
    BYPASSRLS see everything still. Roles that another one of these has named keep what they see. Reversed, it
    drops its policies, and switches row security off where a table has no other.

    Raises:
        InvalidOption: as `GrantRoles`.

    """

    def doing(self, given: Roles, place: Place) -> Iterator[str]:
        """Create the policies, and switch it on."""
        return roles.enabling(given, place)

    def undoing(self, given: Roles, place: Place) -> Iterator[str]:  # noqa: ARG002 -- as the others
        """Drop the policies, of dropped roles too, and switch it off."""
        return roles.disabling(self.roles, place)

    def describe(self) -> str:
        """Say what it does."""
        return f"Hide the tables of jobs from all but their owner and {self._named}"

    @property
    def migration_name_fragment(self) -> str:
        """What makemigrations calls it."""
        return "hide_tables_of_jobs"


def _execute_on(editor: BaseDatabaseSchemaEditor) -> Execute:
    def execute(sql: str, params: Params) -> Rows:
        with editor.connection.cursor() as cursor:
            cursor.execute(sql, params)
            rows: Rows = cursor.fetchall()
            return rows

    return execute
