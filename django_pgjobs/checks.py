"""System checks: what `manage.py check` says about the project's configuration.

Invariant: an id never changes its meaning, so that `SILENCED_SYSTEM_CHECKS` stays true.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.db import connections, router

from django_pgjobs import conf


def check_settings(**_kwargs: Any) -> list[CheckMessage]:
    """Report the faults of the `PGJOBS` setting: pgjobs.E001 to pgjobs.E004, E006."""
    return [
        Error(problem.message, hint=problem.hint, id=problem.id)
        for problem in conf.problems(getattr(settings, "PGJOBS", {}))
    ]


def check_database(**_kwargs: Any) -> list[CheckMessage]:
    """Report a jobs database that is not PostgreSQL: pgjobs.E005."""
    from django_pgjobs.models import Job  # noqa: PLC0415 -- no models before the apps are loaded

    alias = router.db_for_write(Job)
    vendor = connections[alias].vendor
    if vendor == "postgresql":
        return []
    return [
        Error(
            f"The database of the jobs must be PostgreSQL, got {vendor} for {alias!r}.",
            hint="Set its ENGINE to 'django.db.backends.postgresql', or route the models of "
            "django_pgjobs to such a database.",
            id="pgjobs.E005",
        )
    ]
