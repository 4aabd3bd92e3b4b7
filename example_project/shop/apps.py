"""The Django app of the shop."""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """The app config; django_pgjobs imports the app's `jobs.py` by itself."""

    name = "example_project.shop"
    default_auto_field = "django.db.models.BigAutoField"
