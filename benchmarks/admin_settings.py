"""Django settings of the process that asks the admin for its pages."""

from __future__ import annotations

from benchmarks.admin import LIMITED
from benchmarks.settings import DATABASES, SECRET_KEY, USE_TZ  # noqa: F401 -- settings
from example_project.settings import (  # noqa: F401 -- likewise
    ADMIN_APPS,
    ADMIN_MIDDLEWARE,
    STATIC_URL,
    TEMPLATES,
)

INSTALLED_APPS = [*ADMIN_APPS, "django_pgjobs"]
MIDDLEWARE = ADMIN_MIDDLEWARE
ROOT_URLCONF = "benchmarks.admin_urls"
ALLOWED_HOSTS = ["testserver"]
PGJOBS = {"QUEUES": {LIMITED: {"concurrency": 2}}}
