"""The admin as it is measured: a superuser asks for its pages, in this process.

The clock starts with Django's test client and ends with the page's last byte: middleware, queries and
templates are in it, a web server is not.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import django
from django.core.management import call_command
from django.db import connection
from django.test import Client

from benchmarks.admin import JOBS, PAGES, ROWS, log
from benchmarks.process import answer

TIMES = 7  # each page, after a first time that warms it up


def measure() -> dict[str, Any]:
    """Return the median time in seconds and the number of queries of every page."""
    # Once the apps are loaded.
    from django.contrib.auth.models import User  # noqa: PLC0415
    from django.contrib.contenttypes.models import ContentType  # noqa: PLC0415

    from django_pgjobs.models import Job  # noqa: PLC0415

    call_command("migrate", verbosity=0)
    client = Client()
    root = User.objects.create_superuser("root")
    client.force_login(root)
    with connection.cursor() as cursor:
        for statement in log(root.pk, ContentType.objects.get_for_model(Job).pk):
            cursor.execute(statement)
        cursor.execute("vacuum analyze django_admin_log")
    named = {name: _value(sql) for name, sql in ROWS.items()}
    first: Any = client.get(JOBS)
    named["last"] = first.context_data["cl"].paginator.num_pages
    return {name: _page(client, address.format(**named)) for name, address in PAGES.items()}


def _page(client: Client, address: str) -> dict[str, float]:
    seconds = []
    for _ in range(1 + TIMES):
        counter = _Counter()
        with connection.execute_wrapper(counter):
            begin = time.perf_counter()
            response = client.get(address)
            seconds.append(time.perf_counter() - begin)
        if response.status_code != 200:  # noqa: PLR2004 -- as HTTP says it
            raise RuntimeError(f"{address} must be shown, got {response.status_code}.")
    return {"seconds": statistics.median(seconds[1:]), "queries": counter.queries}


class _Counter:
    """Counts the statements of a connection."""

    queries = 0

    def __call__(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        self.queries += 1
        return execute(*arguments)


def _value(sql: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return int(cursor.fetchone()[0])


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.admin_settings"
    django.setup()
    answer({"measure": measure})
