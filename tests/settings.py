"""Django settings of the tests, and of the tools that read models without a server (mypy, migrations)."""

from __future__ import annotations

import os
import secrets

from example_project.database_url import database_from_url

SECRET_KEY = "of the tests, and of nothing else"  # noqa: S105
USE_TZ = True
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_pgjobs",
    "tests.app",
]
MIDDLEWARE = [
    "tests.policy.strict",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
# The random name keeps two runs apart that DATABASE_URL sends to one server.
TEST_NAME = f"test_pgjobs_{secrets.token_hex(4)}"
URL = os.environ.get("PGJOBS_TEST_URL", "postgresql://127.0.0.1:1/without-a-server")
DATABASES = {
    "default": {**database_from_url(URL), "TEST": {"NAME": TEST_NAME}},
    # A second database, for routers and for transactions that are not the jobs' own.
    "other": {**database_from_url(URL), "TEST": {"NAME": f"{TEST_NAME}_other"}},
}
