#!/usr/bin/env python
"""Django's command line for the example: `python example_project/manage.py runjobs`, and all others."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    # The example lies inside the repository of django_pgjobs: both are imported from there.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    execute_from_command_line(sys.argv)
