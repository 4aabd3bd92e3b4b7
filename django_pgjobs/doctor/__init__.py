"""Look for what makes jobs slow, late or lost: each finding says what is wrong and what to do.

Invariant: it changes nothing; one look that fails, for want of a privilege say, is a finding itself and
spoils no other; it asks the catalogue and indexes, but for the kinds, for which it reads what waits.
"""

from __future__ import annotations

from django.db import transaction

from django_pgjobs.doctor import schema, server, work
from django_pgjobs.doctor.findings import Finding, Look, Patient, Severity
from django_pgjobs.sessions import DATABASE_ERRORS, execute_on_django, reason, refused

# In this order. Each has what is said where it finds nothing.
LOOKS: dict[str, tuple[Look, str]] = {
    "migrations": (schema.migrations, "All migrations are applied."),
    "role": (schema.role, "This role may do, and sees, what a worker must."),
    "indexes": (schema.indexes, "All indexes are there and valid."),
    "functions": (schema.functions, "All SQL functions are those of this release."),
    "snapshot": (server.snapshot, "No old snapshot keeps dead rows alive."),
    "vacuum": (server.vacuum, "Autovacuum is on and keeps up, and dead rows are few."),
    "bloat": (server.bloat, "No index is much larger than what it holds, by an estimate."),
    "pooler": (server.pooler, "No pooler in transaction mode breaks anything."),
    "clock": (server.clock, "The clocks of this machine and of the database agree."),
    "schedules": (work.schedules, "Every schedule that is on can fire."),
    "kinds": (work.kinds, "Every waiting job has code that takes it."),
    "workers": (work.workers, "No dead or silent worker holds jobs, and none died within a day."),
    "queues": (work.queues, "Every queue with due jobs is served by a living worker."),
}


def examine(alias: str) -> list[Finding]:
    """Look for everything, and return at least one finding for each look, in their order.

    Where a migration is missing that is all: nothing else can be asked of other tables than these.

    Raises:
        django.db.Error: the connection is lost.

    """
    execute = execute_on_django(alias)
    patient = Patient(alias, lambda sql, **params: execute(sql, params))
    findings: list[Finding] = []
    for name, (look, well) in LOOKS.items():
        findings += _looked(name, look, patient) or [Finding(name, Severity.OK, well)]
        if name == "migrations" and findings[0].severity is not Severity.OK:
            break
    return findings


def _looked(name: str, look: Look, patient: Patient) -> list[Finding]:
    try:
        with transaction.atomic(using=patient.alias):
            return [Finding(name, *said) for said in look(patient)]
    except DATABASE_ERRORS as error:
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        if not refused(cause):
            raise
        what = f"It could not be looked at: {reason(cause)}."
        return [Finding(name, Severity.WARNING, what, "Allow it to the role of this database.")]
