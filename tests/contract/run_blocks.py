"""Run the code blocks of one page as one script, inside a project: its argument is them as JSON."""

from __future__ import annotations

import json
import os
import sys

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "mysite.settings"
django.setup()

from django.db import connection  # noqa: E402 -- settings first

namespace: dict[str, object] = {"__name__": "page"}
for language, page, line, code in json.loads(sys.argv[1]):
    if language != "python":
        with connection.cursor() as cursor:
            cursor.execute(code)
    else:
        # Moved down to its place in the page, so that a traceback shows the line there.
        source = "\n" * (line - 1) + code
        exec(compile(source, page, "exec"), namespace)  # noqa: S102 -- our own pages
