"""Django settings of the processes that consume and send messages."""

from __future__ import annotations

from benchmarks.settings import (  # noqa: F401 -- settings
    DATABASES,
    INSTALLED_APPS,
    SECRET_KEY,
    USE_TZ,
)

INSTALLED_APPS = [*INSTALLED_APPS, "django_pgjobs.pgmq"]
