"""What a database has of pgmq, and the SQL that gives it the rest.

The server's extension comes first, where there is one: the server knows its version and upgrades it.
Elsewhere the wheel `pgmq` carries the same pgmq as SQL that needs no extension; what it installed is
recorded where pgmq's own installers look it up, and marked as ours, so that we remove nothing else.

Invariant: pgmq is there if and only if `pgmq.meta` is, however it was installed.
"""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

WHEEL = "pip install 'django-pgjobs[pgmq]'"

_MARK = "Installed by django_pgjobs.pgmq"

# Asked by the migration and the check. No index: the catalogue's own. Of pg_extension it would be
# wrong: pgmq without an extension is as good.
_IS_INSTALLED = "select to_regclass('pgmq.meta') is not null"

# Asked by the migration and the check: the extensions that the server has files of, a few hundred.
_IS_AVAILABLE = "select exists (select from pg_available_extensions where name = 'pgmq')"

# Asked by the migration when it is reversed: is this schema ours?
_IS_OURS = "select obj_description(to_regnamespace('pgmq'), 'pg_namespace') = %(mark)s"

# Read by the migration when it is reversed.
_QUEUES = "select queue_name from pgmq.meta order by queue_name"

# Run by the migration after the wheel's SQL. The table is the one that pgmq's own installers without an
# extension keep (pgmq-cli of its Rust client): they can tell the version by it, and upgrade.
_RECORD = """
create table if not exists pgmq.__pgmq_migrations (
    name text primary key not null,
    version text not null,
    run_at timestamptz not null default clock_timestamp()
);
insert into pgmq.__pgmq_migrations (name, version) values ('pgmq.sql', '{version}');
comment on schema pgmq is '{mark}';
"""


def is_installed(connection: BaseDatabaseWrapper) -> bool:
    """Whether the database has pgmq."""
    return bool(_ask(connection, _IS_INSTALLED))


def extension_is_available(connection: BaseDatabaseWrapper) -> bool:
    """Whether the server has the files of the extension."""
    return bool(_ask(connection, _IS_AVAILABLE))


def is_ours(connection: BaseDatabaseWrapper) -> bool:
    """Whether it was installed here from the wheel's SQL."""
    return bool(_ask(connection, _IS_OURS, {"mark": _MARK}))


def queues(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the names of all queues."""
    with connection.cursor() as cursor:
        cursor.execute(_QUEUES)
        return [name for (name,) in cursor.fetchall()]


def has_wheel() -> bool:
    """Whether the wheel can be imported, and is of a version that carries the SQL."""
    try:
        from pgmq import get_embedded_install_sql  # noqa: F401, PLC0415 -- an extra
    except ImportError:
        return False
    return True


def wheel_sql() -> str:
    """Return the SQL of the wheel, and what records it."""
    from pgmq import get_embedded_install_sql, get_embedded_sql_version  # noqa: PLC0415 -- an extra

    return get_embedded_install_sql() + _RECORD.format(
        version=get_embedded_sql_version().replace("'", "''"), mark=_MARK
    )


def _ask(connection: BaseDatabaseWrapper, sql: str, params: dict[str, Any] | None = None) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchone()[0]
