"""The example's settings with two lies: receipts go nowhere, and a checkout is no transaction."""

from __future__ import annotations

import django

from example_project.settings import *  # noqa: F403

_NOWHERE = "django.core.mail.backends.dummy.EmailBackend"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": _NOWHERE}}
else:
    EMAIL_BACKEND = _NOWHERE

ROOT_URLCONF = "tests.acceptance.lies.urls"
