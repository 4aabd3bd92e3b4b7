"""Whether this code can run what waits: every kind has a handler, and every payload fits it.

A handler's signature asks for names alone, so the server groups the waiting jobs by kind and names, and
no payload leaves it. It reads all of them: minutes for millions.

Invariant: it changes nothing, and keeps no more in memory than it has to tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from django.db import connections, transaction

from django_pgjobs import inspection, registry
from django_pgjobs.exceptions import InvalidPayload, UnknownKind

_BATCH = 1_000  # rows of one answer: a handler that takes any name may have as many as it has jobs


class Misfit(NamedTuple):
    """Waiting jobs of one kind that fail with this code, for one reason."""

    kind: str
    problem: str  # "unknown kind" or "payload"
    jobs: int
    example: int  # the id of one
    text: str


def misfits(alias: str) -> list[Misfit]:
    """Return what waits and cannot be run by this code: by kind, the unknown ones first."""
    found: dict[tuple[str, str, str], Misfit] = {}
    for kind, names, jobs, example in _waiting(alias):
        if problem := _problem(kind, names):
            known = found.get((kind, *problem))
            if known:
                jobs, example = jobs + known.jobs, min(example, known.example)  # noqa: PLW2901 -- the sum
            found[kind, *problem] = Misfit(kind, problem[0], jobs, example, problem[1])
    return sorted(found.values(), key=lambda one: (one.problem != "unknown kind", one.kind))


def _waiting(alias: str) -> Iterator[tuple[str, list[str], int, int]]:
    # In a transaction a cursor of the server works behind a pooler too.
    connection = connections[alias]
    with transaction.atomic(using=alias), closing(connection.chunked_cursor()) as cursor:
        cursor.execute(inspection.WAITING)
        while rows := cursor.fetchmany(_BATCH):
            yield from rows


def _problem(kind: str, names: list[str]) -> tuple[str, str] | None:
    try:
        registry.get_job(kind).signature.check_arguments(kind, names)
    except UnknownKind as error:
        return "unknown kind", f"{error} Or give the handler this name as one of its aliases."
    except InvalidPayload as error:
        return "payload", f"{error} Give a new argument a default, and keep an old one."
    return None
