"""Run one handler without a row: the payload is stored and read back only in memory."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

from asgiref.sync import async_to_sync
from django.db import router, transaction
from django.utils import timezone

from django_pgjobs import conf, execution, failures, payloads, registry
from django_pgjobs.claims import Claim
from django_pgjobs.context import NO_ROW
from django_pgjobs.job_types import JobType
from django_pgjobs.lifecycle import Status
from django_pgjobs.lines import Line
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Done, Failed
from django_pgjobs.testing.kinds import Kind, Task, names_of
from django_pgjobs.testing.runs import Witness

# Nobody could look up a job that has no row, and the test is told all that becomes of it.
execution.logger.addFilter(lambda record: getattr(record, "job_id", None) != NO_ROW)


def perform(kind: Kind, /, *args: Any, **payload: Any) -> Any:
    """Run the handler of a kind once, as its first attempt, and return the result as a job keeps it.

    The payload is checked, stored and read back as an enqueue and a worker would, but there is no row.
    The job of a context is in memory only, its id is 0, and nobody asks it to stop. What the handler
    raises is raised here, also `Retry`, `Snooze`, and what is no `Exception`.

    Raises:
        UnknownKind: no handler is registered for the kind.
        InvalidPayload: the payload does not fit the handler or cannot be stored.
        TypeError: an argument of a task is not JSON.
        AssertionError: the handler could not be called.

    """
    job_type, bound = _bound(kind, args, payload)
    text = payloads.encode(bound, max_bytes=conf.get().max_payload_bytes)
    attempts = job_type.options.max_attempts or conf.get().max_attempts
    claim = Claim(NO_ROW, job_type.kind, text, 1, 0, attempts, 1, job_type.options.queue)
    alias, witness = router.db_for_write(Job), Witness()
    line = Line(alias)
    line.job = _job(claim, job_type.options.priority, alias)
    run = async_to_sync(execution.arun) if job_type.is_async else execution.run
    # What is raised here takes the writes of an atomic job back, as in a worker.
    with transaction.atomic(using=alias) if job_type.atomic else nullcontext():
        outcome = run(claim, "perform()", witness, line=line)
        if witness.error is not None:
            raise witness.error
    if isinstance(outcome, Failed):
        said = failures.summary(outcome.error)
        text = f"The handler of {job_type.kind!r} must be called, got {said!r}."
        raise AssertionError(text)  # noqa: TRY004 -- no type is wrong
    if isinstance(outcome, Done) and outcome.result is not None:
        return json.loads(outcome.result)
    return None


def _bound(
    kind: Kind, args: tuple[Any, ...], payload: dict[str, Any]
) -> tuple[JobType[..., Any], dict[str, Any]]:
    """Return the type of the job and its payload, as the `enqueue()` of this kind would have it."""
    if isinstance(kind, Task) and not isinstance(kind, JobType):
        from django_pgjobs.tasks import task_types  # noqa: PLC0415 -- only where there are tasks

        task_type = task_types.of(kind)
        return task_type, task_type.payload_of(args, payload)
    job_type = kind if isinstance(kind, JobType) else registry.get_job(names_of(kind)[0])
    return job_type, job_type.signature.bind(job_type.kind, args, payload)


def _job(claim: Claim, priority: int, alias: str) -> Job:
    """Return the job as its row would be while it runs."""
    now = timezone.now()
    columns: dict[str, Any] = {field.attname: None for field in Job._meta.concrete_fields}  # noqa: SLF001 -- Django's own API
    columns.update(
        id=claim.id,
        kind=claim.kind,
        queue=claim.queue,
        payload=json.loads(claim.payload),
        status=Status.RUNNING.value,
        priority=priority,
        attempts=claim.attempts,
        max_attempts=claim.max_attempts,
        attempts_before=claim.attempts_before,
        claims=claim.claims,
        last_error="",
        errors=[],
        meta={},
        **dict.fromkeys(("created_at", "run_at", "attempted_at", "locked_at"), now),
    )
    return Job.from_db(alias, list(columns), list(columns.values()))
