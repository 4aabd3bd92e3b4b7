"""Django settings of the measured processes: every default, one database."""

from __future__ import annotations

import os

from example_project.database_url import database_from_url

SECRET_KEY = "of the benchmarks, and of nothing else"  # noqa: S105
USE_TZ = True
INSTALLED_APPS = ["django_pgjobs", "benchmarks"]
DATABASES = {"default": database_from_url(os.environ["BENCHMARK_URL"])}
TASKS = {"default": {"BACKEND": "django_pgjobs.tasks.PgJobsBackend"}}
