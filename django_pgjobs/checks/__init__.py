"""System checks: what `manage.py check` says about the project, one module for each subject.

Invariant: an id never changes its meaning, so that `SILENCED_SYSTEM_CHECKS` stays true; and of a server
that does not answer one check tells, and as a warning, for `migrate` runs them first; the others say nothing
where it does not answer or refuses.
"""

from __future__ import annotations

from django.core import checks
from django.core.checks import Tags

from django_pgjobs.checks.configuration import check_debug, check_drain_token, check_settings
from django_pgjobs.checks.databases import check_databases
from django_pgjobs.checks.kinds import check_kinds, check_schedules
from django_pgjobs.checks.sessions import check_listening, check_poolers, check_sessions
from django_pgjobs.checks.tables import check_tables

OF_THE_PROJECT = (check_settings, check_drain_token, check_databases, check_kinds)
# Django runs these for the databases that `check --database` or `migrate` names.
OF_THE_SERVER = (check_poolers, check_listening, check_sessions, check_tables, check_schedules)


def register() -> None:
    """Have Django run them."""
    for check in OF_THE_PROJECT:
        checks.register(check)
    for check in OF_THE_SERVER:
        checks.register(check, Tags.database)
    checks.register(check_debug, deploy=True)


__all__ = [
    "check_databases",
    "check_debug",
    "check_drain_token",
    "check_kinds",
    "check_listening",
    "check_poolers",
    "check_schedules",
    "check_sessions",
    "check_settings",
    "check_tables",
    "register",
]
