"""Probe handlers that write a row and then ask for something, in each way that a handler can run."""

from __future__ import annotations

from django.contrib.auth.models import Group

from django_pgjobs import Discard, Retry, Snooze, job
from tests import ledger


def _ask(what: str, name: str) -> None:
    ledger.note("end", name)
    match what:
        case "retry":
            raise Retry(3_000)
        case "retry by the policy":
            raise Retry
        case "snooze":
            raise Snooze(3_000)
        case "bad snooze":
            raise Snooze(-1)
        case "discard":
            raise Discard("no such order")
        case "discard by its type":
            raise KeyError(name)
        case "not to be retried":
            raise ValueError(name)


@job(retry=[2_000], retry_on=LookupError, discard_on=KeyError)
def ask(what: str, name: str) -> None:
    """Write a row, then ask."""
    Group.objects.create(name=name)
    _ask(what, name)


@job(retry=[2_000], retry_on=LookupError, discard_on=KeyError)
async def aask(what: str, name: str) -> None:
    """As above."""
    await Group.objects.acreate(name=name)
    _ask(what, name)


@job(atomic=True, retry=[2_000], retry_on=LookupError, discard_on=KeyError)
def ask_atomically(what: str, name: str) -> None:
    """As above, in one transaction with the settle."""
    Group.objects.create(name=name)
    _ask(what, name)
