"""What the migration operations have in common.

Invariant: each runs in the migration's transaction, on PostgreSQL only, where the routers allow it.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import router
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from django_pgjobs.schema import APP


class OnPostgreSQL(Operation):
    """Changes nothing that Django's models know."""

    app: ClassVar[str | None] = None  # whose tables it changes; if none, the migration's own app's

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Leave the state as it is."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002 -- Django's signature
        to_state: ProjectState,  # noqa: ARG002 -- likewise
    ) -> None:
        """Do it."""
        if self._concerns(app_label, schema_editor):
            self.forwards(schema_editor)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002 -- likewise
        to_state: ProjectState,  # noqa: ARG002 -- likewise
    ) -> None:
        """Undo it."""
        if self._concerns(app_label, schema_editor):
            self.backwards(schema_editor)

    def forwards(self, editor: BaseDatabaseSchemaEditor) -> None:
        """Do it, on a PostgreSQL that this app may migrate."""
        raise NotImplementedError

    def backwards(self, editor: BaseDatabaseSchemaEditor) -> None:
        """Undo it there."""
        raise NotImplementedError

    def _concerns(self, app_label: str, editor: BaseDatabaseSchemaEditor) -> bool:
        connection = editor.connection
        return connection.vendor == "postgresql" and router.allow_migrate(
            connection.alias, self.app or app_label
        )


class OnJobs(OnPostgreSQL):
    """Changes what is beside the tables of jobs, in a migration of whatever app."""

    app = APP
