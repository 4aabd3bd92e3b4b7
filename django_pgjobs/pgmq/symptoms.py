"""What the doctor looks at: whether consumers have their queues, and this role the privileges."""

from __future__ import annotations

from django_pgjobs.doctor.findings import Patient, Said, Severity
from django_pgjobs.pgmq import readiness
from django_pgjobs.pgmq.consumers import consumers as declared
from django_pgjobs.sessions import execute_on_django

WELL = "Every consumer of pgmq has its queues, and this role what consuming takes."


def consumers(_patient: Patient) -> Said:
    """Find what consumers lack: each on the database of its queue."""
    for fault in readiness.faults(declared().values(), execute_on_django):
        what, _, do = str(fault).partition(". ")
        yield Severity.ERROR, f"{what}.", do
