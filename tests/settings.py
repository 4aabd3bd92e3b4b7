"""Django settings of the tests, and of the tools that read models without a server (mypy, migrations)."""

from __future__ import annotations

import os
import secrets
from importlib.util import find_spec

from example_project.database_url import database_from_url
from example_project.settings import ADMIN_APPS, ADMIN_MIDDLEWARE, TEMPLATES  # noqa: F401 -- a setting

SECRET_KEY = "of the tests, and of nothing else"  # noqa: S105
# What protects real passwords takes half a second each time.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
USE_TZ = True
# An environment without the wheel of pgmq tests that nothing else needs it.
PGMQ_APPS = ["django_pgjobs.pgmq"] if find_spec("pgmq") else []
INSTALLED_APPS = [*ADMIN_APPS, "django_pgjobs", *PGMQ_APPS, "tests.app"]
MIDDLEWARE = ["tests.policy.strict", *ADMIN_MIDDLEWARE]
# The real one, where it is there: it comes with the same table.
INSTALLED_APPS.append("django_tasks_db" if find_spec("django_tasks_db") else "tests.tasks_db")
TASKS = {
    alias: {"BACKEND": "django_pgjobs.tasks.PgJobsBackend", "QUEUES": []}
    for alias in ("default", "second")
}
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
# The random name keeps two runs apart that DATABASE_URL sends to one server.
TEST_NAME = f"test_pgjobs_{secrets.token_hex(4)}"
URL = os.environ.get("PGJOBS_TEST_URL", "postgresql://127.0.0.1:1/without-a-server")
DATABASES = {
    "default": {**database_from_url(URL), "TEST": {"NAME": TEST_NAME}},
    # A second database, for routers and for transactions that are not the jobs' own.
    "other": {**database_from_url(URL), "TEST": {"NAME": f"{TEST_NAME}_other"}},
}
