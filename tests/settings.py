"""Django settings of the tests, and of the tools that read models without a server (mypy, migrations)."""

from __future__ import annotations

import os
import secrets

from example_project.database_url import database_from_url
from example_project.settings import ADMIN_APPS, ADMIN_MIDDLEWARE, TEMPLATES  # noqa: F401 -- a setting

SECRET_KEY = "of the tests, and of nothing else"  # noqa: S105
USE_TZ = True
INSTALLED_APPS = [*ADMIN_APPS, "django_pgjobs", "tests.app"]
MIDDLEWARE = ["tests.policy.strict", *ADMIN_MIDDLEWARE]
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
