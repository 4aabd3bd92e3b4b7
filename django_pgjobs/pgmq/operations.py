"""Migration operations: install pgmq, create a queue.

Invariant: each runs in the migration's transaction, on PostgreSQL only, where the routers allow it.
"""

from __future__ import annotations

from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.operations.base import OperationCategory

from django_pgjobs.exceptions import PgmqMissing
from django_pgjobs.operations import OnPostgreSQL
from django_pgjobs.pgmq import installation
from django_pgjobs.pgmq.names import check_name


class InstallPgmq(OnPostgreSQL):
    """Install pgmq: the server's extension, or else the SQL of the wheel; nothing where it is there.

    Reversed, it drops what the wheel's SQL installed, and leaves an extension, or a pgmq that others
    installed, where it is.

    Raises:
        PgmqMissing: there is neither. The server was asked, and the migration's transaction is rolled back.
        IrreversibleError: it is reversed while there are queues.

    """

    category = OperationCategory.SQL

    def forwards(self, editor: BaseDatabaseSchemaEditor) -> None:
        """Install it, unless it is there."""
        connection = editor.connection
        if installation.is_installed(connection):
            return
        if installation.extension_is_available(connection):
            editor.execute("create extension pgmq", params=None)
        elif installation.has_wheel():
            editor.execute(installation.wheel_sql(), params=None)
        else:
            raise PgmqMissing.of(connection.alias)

    def backwards(self, editor: BaseDatabaseSchemaEditor) -> None:
        """Drop it, if it is ours and has no queue."""
        connection = editor.connection
        if not installation.is_ours(connection):
            return
        if queues := installation.queues(connection):
            raise IrreversibleError(
                f"pgmq must have no queue when it is removed, got {', '.join(queues):.200}. "
                "Drop them first: Queue(name).drop()."
            )
        editor.execute("drop schema pgmq cascade", params=None)

    def describe(self) -> str:
        """Say what it does."""
        return "Install pgmq"

    @property
    def migration_name_fragment(self) -> str:
        """What makemigrations calls it."""
        return "install_pgmq"


class CreateQueue(OnPostgreSQL):
    """Create a queue, in a migration that depends on `("django_pgjobs_pgmq", "0001_initial")`.

    Nothing happens to a queue that is there already. Reversed, it drops the queue and its archive with all
    that is in them, as the reverse of CreateModel does.

    Raises:
        InvalidOption: pgmq can have no queue of this name.

    """

    category = OperationCategory.ADDITION

    def __init__(self, name: str, *, unlogged: bool = False) -> None:
        """Check the name."""
        self.name = check_name(name)
        self.unlogged = unlogged

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return what writes it into a file."""
        return type(self).__qualname__, [self.name], {"unlogged": True} if self.unlogged else {}

    def forwards(self, editor: BaseDatabaseSchemaEditor) -> None:
        """Create the queue."""
        function = "create_unlogged" if self.unlogged else "create"
        editor.execute(f"select pgmq.{function}(%s)", [self.name])

    def backwards(self, editor: BaseDatabaseSchemaEditor) -> None:
        """Drop the queue."""
        editor.execute("select pgmq.drop_queue(%s)", [self.name])

    def describe(self) -> str:
        """Say what it does."""
        return f"Create the pgmq queue {self.name}"

    @property
    def migration_name_fragment(self) -> str:
        """What makemigrations calls it."""
        return f"queue_{self.name}"
