"""Migration operations: the SQL functions of maintenance, and notifications of what plain SQL inserts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import OperationCategory

from django_pgjobs import functions
from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.lifecycle import NOW
from django_pgjobs.notify import CHANNEL
from django_pgjobs.operations.base import OnJobs
from django_pgjobs.options import check_queue
from django_pgjobs.statements import JOB

# Asked by the operations. Raw: the catalogue has no model. `sqlmigrate` may ask before there is a table.
_SCHEMA = f"""
select quote_ident(coalesce(
    (select relnamespace::regnamespace::text from pg_class where oid = to_regclass('{JOB}')),
    current_schema(), 'public'))
"""

_TRIGGER = "django_pgjobs_notify"


class InstallFunctions(OnJobs):
    """Create the SQL functions of maintenance, or make them those of this code. For our own migrations.

    `digest` is `functions.digest()`, so that none of them changes without a migration. Reversed, it drops
    them: workers do without, as those of the release before.
    """

    category = OperationCategory.SQL

    def __init__(self, digest: str) -> None:
        """Remember which ones are meant."""
        self.digest = digest

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return what writes it into a file."""
        return type(self).__qualname__, [self.digest], {}

    def forwards(self, editor: BaseDatabaseSchemaEditor) -> None:
        """Create them."""
        schema = _schema(editor)
        for function in functions.functions():
            editor.execute(function.create(schema), params=None)

    def backwards(self, editor: BaseDatabaseSchemaEditor) -> None:
        """Drop them."""
        schema = _schema(editor)
        for function in reversed(functions.functions()):
            editor.execute(function.drop(schema), params=None)

    def describe(self) -> str:
        """Say what it does."""
        return "Create the SQL functions that reap and prune"

    @property
    def migration_name_fragment(self) -> str:
        """What makemigrations calls it."""
        return "functions"


class NotifyOnInsert(OnJobs):
    """Wake workers of jobs that plain SQL inserts: a trigger notifies in the inserting transaction.

    In a migration that depends on `("django_pgjobs", "0001_initial")`. It notifies once per queue and
    statement, of jobs that are due; with `queues` of these queues alone. A transaction that notifies commits
    one after the other with all that do, on the whole server. Reversed, it drops the trigger.

    Raises:
        InvalidOption: `queues` is no list of names that queues can have.

    """

    category = OperationCategory.ADDITION

    def __init__(self, queues: Iterable[str] = ()) -> None:
        """Check the names."""
        if isinstance(queues, str):
            raise InvalidOption(
                f"queues must be a list of names, got {queues!r}. Put it into brackets."
            )
        self.queues = list(queues)
        for queue in self.queues:
            check_queue(queue)

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return what writes it into a file."""
        return type(self).__qualname__, [], {"queues": self.queues} if self.queues else {}

    def forwards(self, editor: BaseDatabaseSchemaEditor) -> None:
        """Create the function and the trigger."""
        schema = _schema(editor)
        queues = ", ".join("'{}'".format(queue.replace("'", "''")) for queue in self.queues)
        editor.execute(notifier(schema), params=None)
        editor.execute(
            f"create trigger {_TRIGGER} after insert on {schema}.{JOB} "
            "referencing new table as inserted for each statement "
            f"execute function {schema}.{_TRIGGER}({queues})",
            params=None,
        )

    def backwards(self, editor: BaseDatabaseSchemaEditor) -> None:
        """Drop them."""
        schema = _schema(editor)
        editor.execute(f"drop trigger if exists {_TRIGGER} on {schema}.{JOB}", params=None)
        editor.execute(f"drop function if exists {schema}.{_TRIGGER}()", params=None)

    def describe(self) -> str:
        """Say what it does."""
        of = f" of {', '.join(self.queues)}" if self.queues else ""
        return f"Notify workers{of} of inserted jobs"

    @property
    def migration_name_fragment(self) -> str:
        """What makemigrations calls it."""
        return "notify_on_insert"


def notifier(schema: str) -> str:
    """Return the statement that creates the trigger's function: what `notify` sends, by queue."""
    return f"""create function {schema}.{_TRIGGER}() returns trigger language plpgsql
set search_path = pg_catalog, pg_temp as $pgjobs$
begin
    perform pg_notify('{CHANNEL}', due.queue) from (
        select distinct queue from inserted
        where status = 'pending' and run_at <= {NOW} and (tg_nargs = 0 or queue = any(tg_argv))
    ) due;
    return null;
end$pgjobs$"""


def _schema(editor: BaseDatabaseSchemaEditor) -> str:
    with editor.connection.cursor() as cursor:
        cursor.execute(_SCHEMA)
        return str(cursor.fetchone()[0])
