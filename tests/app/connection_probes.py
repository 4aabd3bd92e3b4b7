"""Probe handlers that do something to connections."""

from __future__ import annotations

from django.contrib.auth.models import Group
from django.db import transaction

from django_pgjobs import job
from tests import ledger


@job
def use_orm(name: str) -> list[str]:
    """Read and write by the ORM, in a transaction, outside one and with an iterator."""
    ledger.note("start", name)
    with transaction.atomic():
        Group.objects.create(name=name)
    Group.objects.create(name=f"{name} again")
    written = Group.objects.filter(name__startswith=name).order_by("name")
    found = [group.name for group in written.iterator(chunk_size=1)]
    ledger.note("end", name)
    return found
