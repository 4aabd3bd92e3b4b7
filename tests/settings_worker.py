"""Settings of the processes that tests start: those of the tests, changed by environment variables."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, INSTALLED_APPS

PGJOBS = json.loads(os.environ.get("PGJOBS_TEST_PGJOBS", "{}"))
DATABASES["default"].update(json.loads(os.environ.get("PGJOBS_TEST_CONNECTION", "{}")))
# Without what only pages need: hundreds of these processes start.
PAGES = {f"django.contrib.{name}" for name in ("admin", "messages", "sessions", "staticfiles")}
INSTALLED_APPS = [
    *(app for app in INSTALLED_APPS if app not in PAGES),
    *os.environ.get("PGJOBS_TEST_APPS", "").split(),
]
ROOT_URLCONF = __name__
urlpatterns: list[object] = []
if os.environ.get("PGJOBS_TEST_FAULT"):
    INSTALLED_APPS.append("tests.faults.Planted")
if os.environ.get("PGJOBS_TEST_FAULT_POINTS"):
    INSTALLED_APPS.append("tests.fault_points.Planted")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "plain": {
            "format": os.environ.get(
                "PGJOBS_TEST_LOG_FORMAT", "%(levelname)s %(name)s: %(message)s"
            )
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {
        "handlers": ["stderr"],
        "level": os.environ.get("PGJOBS_TEST_LOG_LEVEL", "WARNING"),
    },
}

# A killed test run must not leave processes behind. A supervisor's children see to that themselves.
if sys.platform == "linux" and "PGJOBS_CHILD" not in os.environ:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
