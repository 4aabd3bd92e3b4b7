"""From a `postgresql://` URL to an entry of Django's DATABASES."""

from __future__ import annotations

from typing import Any

from psycopg.conninfo import conninfo_to_dict

NAMES = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}


def database_from_url(url: str) -> dict[str, Any]:
    """Return the settings; what Django has no key for (sslmode and the like) goes to OPTIONS."""
    parts = {k: str(v) for k, v in conninfo_to_dict(url).items() if v is not None}
    settings: dict[str, Any] = {django: parts.pop(libpq, "") for libpq, django in NAMES.items()}
    settings["NAME"] = settings["NAME"] or "postgres"
    return {"ENGINE": "django.db.backends.postgresql", **settings, "OPTIONS": parts}
