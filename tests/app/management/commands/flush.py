"""`manage.py flush` as the tests need it, hundreds of times: empty the tables that hold something.

Django's own truncates every table, and then writes content types and permissions anew, each time ten
times slower. Those are what the migrations made of them, so they stay.
"""

from __future__ import annotations

from typing import Any

from django.core.management.color import no_style
from django.core.management.commands import flush
from django.db import connections

MADE_BY_MIGRATIONS = {"django_content_type", "auth_permission"}


class Command(flush.Command):
    """Leave every other table as a new one is: without rows, and without the pages of former ones."""

    def handle(self, **options: Any) -> None:
        connection = connections[options["database"]]
        tables = {*connection.introspection.django_table_names()} - MADE_BY_MIGRATIONS
        with connection.cursor() as cursor:
            cursor.execute(
                "select relname from pg_class where relname = any(%s) and pg_table_is_visible(oid) "
                "and pg_relation_size(oid) > 0",
                [sorted(tables)],
            )
            used = [name for (name,) in cursor]
        if used:
            # What refers to them goes with them.
            connection.ops.execute_sql_flush(
                connection.ops.sql_flush(no_style(), used, allow_cascade=True)
            )
