"""Assert what was enqueued, and what was not.

Invariant: a failed assertion says what there is instead, and in what the nearest jobs differ.
"""

from __future__ import annotations

from collections import Counter
from typing import Unpack, overload

from django.db import router

from django_pgjobs import registry
from django_pgjobs.models import Job
from django_pgjobs.testing import comparing
from django_pgjobs.testing.counts import check_count
from django_pgjobs.testing.expectations import Expected, Wanted
from django_pgjobs.testing.kinds import Kind, names_of

_MOST = 5  # jobs that a message shows


@overload
def assert_enqueued(
    kind: Kind, *, count: int, database: str | None = None, **wanted: Unpack[Wanted]
) -> list[Job]: ...
@overload
def assert_enqueued(
    kind: Kind, *, count: None = None, database: str | None = None, **wanted: Unpack[Wanted]
) -> Job: ...
def assert_enqueued(
    kind: Kind, *, count: int | None = None, database: str | None = None, **wanted: Unpack[Wanted]
) -> Job | list[Job]:
    """Demand that a job is there, whatever its status, and return the last one that fits.

    With a `count`, demand exactly so many and return them all, in the order of their ids.

    Args:
        kind: a name, a `JobType` or a task. The options of a copy made with `using()` do not count.
        count: how many there must be; by default one or more.
        database: the alias of the jobs, by default what the routers give.
        wanted: `payload`, what its payload has among other things, at any depth; `queue`; `priority`;
            `run_at`, its time, or the earliest and the latest one; `delay`, the exact time from its
            enqueue to `run_at`; `subject`, the model instance that it is about.

    Raises:
        AssertionError: there is none, or not so many.
        UnknownKind: neither a handler nor a job has a kind of that name.
        InvalidOption, InvalidPayload: no job of that kind could be so, or there can be no such count.

    """
    if count is not None:
        check_count("count", count)
    expected = Expected.of(kind, wanted)
    found, others = _sorted(kind, expected, database)
    if count is None and found:
        return found[-1]
    if count is not None and len(found) == count:
        return found
    wants = "one" if count is None else f"exactly {count}"
    lines = [_line(job) for job in found[-_MOST:]] if count is not None else []
    lines += [_line(job, differences) for differences, job in others[:_MOST]]
    raise AssertionError(
        f"Of {names_of(kind)[0]!r}, {wants}{expected} must be enqueued, got {len(found) or 'none'}."
        + _list(lines or [_other_kinds(database)])
    )


def refute_enqueued(kind: Kind, *, database: str | None = None, **wanted: Unpack[Wanted]) -> None:
    """Demand that no such job is there, whatever its status. Arguments as for `assert_enqueued()`.

    Raises:
        AssertionError: there is one.
        UnknownKind, InvalidOption, InvalidPayload: there could be none, so that this would say nothing.

    """
    expected = Expected.of(kind, wanted)
    found, _ = _sorted(kind, expected, database)
    if found:
        raise AssertionError(
            f"Of {names_of(kind)[0]!r}, none{expected} must be enqueued, got {len(found)}."
            + _list([_line(job) for job in found[-_MOST:]])
        )


def _sorted(
    kind: Kind, expected: Expected, database: str | None
) -> tuple[list[Job], list[tuple[list[str], Job]]]:
    """Return the jobs that are as expected, and the others of the kind, the nearest first."""
    jobs = Job.objects.using(database or router.db_for_write(Job))
    judged = [
        (expected.differences(job), job)
        for job in jobs.filter(kind__in=names_of(kind)).order_by("pk")
    ]
    if not judged and isinstance(kind, str):
        registry.get_job(kind)  # a name with a slip in it would never be found
    others = [(differences, job) for differences, job in judged if differences]
    others.sort(key=lambda other: len(other[0]))
    return [job for differences, job in judged if not differences], others


def _line(job: Job, differences: list[str] | None = None) -> str:
    shown = "; ".join(differences or [f"payload is {comparing.shown(job.payload)}"])
    return f"Job {job.pk} ({job.status}): {shown}."


def _other_kinds(database: str | None) -> str:
    jobs = Job.objects.using(database or router.db_for_write(Job))
    kinds = Counter(jobs.values_list("kind", flat=True)).most_common(_MOST)
    named = ", ".join(f"{kind} ({count})" for kind, count in kinds)
    return f"There are: {named}." if named else "There is no job at all."


def _list(lines: list[str]) -> str:
    return "".join(f"\n  {line}" for line in lines)
