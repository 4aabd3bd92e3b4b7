"""Settings of a process whose jobs live in the database "other"; at "default" there is nobody."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.settings_worker import *  # noqa: F403
from tests.settings_worker import DATABASES

DATABASES["other"].update(json.loads(os.environ["PGJOBS_TEST_OTHER"]))
DATABASES["default"]["PORT"] = "1"


class JobsRouter:
    def db_for_read(self, model: Any, **_hints: object) -> str | None:
        return "other" if model._meta.app_label == "django_pgjobs" else None

    db_for_write = db_for_read


DATABASE_ROUTERS = [JobsRouter()]
