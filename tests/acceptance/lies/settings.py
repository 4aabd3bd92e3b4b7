"""The example's settings with lies: receipts go nowhere, a checkout is no transaction, rules are none."""

from __future__ import annotations

import django

from example_project.settings import *  # noqa: F403

_NOWHERE = "django.core.mail.backends.dummy.EmailBackend"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": _NOWHERE}}
else:
    EMAIL_BACKEND = _NOWHERE

ROOT_URLCONF = "tests.acceptance.lies.urls"
INSTALLED_APPS = [*INSTALLED_APPS, "tests.acceptance.lies.apps.Lies"]  # noqa: F405
