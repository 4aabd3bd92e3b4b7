"""`manage.py pgmq`, for projects that list the app: Django looks for its commands here."""

from __future__ import annotations

from django_pgjobs.management.messages import Command

__all__ = ["Command"]
