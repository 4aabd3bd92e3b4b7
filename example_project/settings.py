"""Django settings of the example.

The environment says what differs between a run by hand, the demo and the tests: DATABASE_URL and the
variables whose names begin with SHOP.
"""

from __future__ import annotations

import os
from pathlib import Path

import django

from example_project.database_url import database_from_url

# Where receipts and invoices go.
FOLDER = Path(os.environ.get("SHOP_FOLDER", Path(__file__).parent / "files"))

SECRET_KEY = "of the example, which has no secrets"  # noqa: S105
DEBUG = True
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "example_project.urls"
STATIC_URL = "static/"

# What the admin needs, here and in the settings of the tests and of the benchmarks.
ADMIN_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
]
ADMIN_MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

INSTALLED_APPS = [*ADMIN_APPS, "django_pgjobs", "django_pgjobs.pgmq", "example_project.shop"]
MIDDLEWARE = ["django.middleware.security.SecurityMiddleware", *ADMIN_MIDDLEWARE]
# Pages load nothing from elsewhere and have nothing inline. Before 6.0 Django cannot say that.
if django.VERSION >= (6, 0):
    MIDDLEWARE.insert(1, "django.middleware.csp.ContentSecurityPolicyMiddleware")
    SECURE_CSP = {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
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

DATABASES = {
    "default": database_from_url(os.environ.get("DATABASE_URL", "postgresql://127.0.0.1/shop"))
}

PGJOBS = {
    # Seconds. The demo shortens them, so that nobody waits a minute until a crash is noticed.
    "LEASE": float(os.environ.get("SHOP_LEASE", "60")),
    "HEARTBEAT": float(os.environ.get("SHOP_HEARTBEAT", "15")),
}

# E-mails become files. Django 6.1 has MAILERS for this, earlier ones the two settings below.
_FILES = "django.core.mail.backends.filebased.EmailBackend"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": _FILES, "OPTIONS": {"file_path": FOLDER / "mail"}}}
else:
    EMAIL_BACKEND = _FILES
    EMAIL_FILE_PATH = FOLDER / "mail"
DEFAULT_FROM_EMAIL = "shop@example.com"

SHOP_INVOICES = FOLDER / "invoices"
SHOP_LOYALTY = FOLDER / "loyalty"  # while there is such a file, the partner answers
SHOP_LABELS = FOLDER / "labels"
SHOP_RED_PAPER = FOLDER / "red-paper"  # while there is such a file, the printer has some
SHOP_PARCEL_SECONDS = float(os.environ.get("SHOP_PARCEL_SECONDS", "30"))
SHOP_INVOICE_SECONDS = float(os.environ.get("SHOP_INVOICE_SECONDS", "3"))
SHOP_STATEMENT_SECONDS = 0.3
SHOP_REPORT_SECONDS = float(os.environ.get("SHOP_REPORT_SECONDS", "86400"))

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)-7s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {"django_pgjobs": {"handlers": ["console"], "level": "INFO"}},
}
