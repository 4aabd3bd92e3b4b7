"""Run one handler without a row: the payload is stored and read back only in memory."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

from asgiref.sync import async_to_sync
from django.db import router, transaction

from django_pgjobs import conf, execution, payloads, registry
from django_pgjobs.claims import Claim
from django_pgjobs.job_types import JobType
from django_pgjobs.lines import Line
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Done
from django_pgjobs.testing.kinds import Kind, names_of
from django_pgjobs.testing.runs import Ran, Witness, failure_of


def perform(kind: Kind, /, *args: Any, **payload: Any) -> Any:
    """Run the handler of a kind once, as its first attempt, and return the result as a job keeps it.

    The payload is checked, stored and read back as an enqueue and a worker would, but there is no row.
    A context has no job that could be read from the database, and nobody asks it to stop. What the
    handler raises is raised here, also `Retry` and `Snooze`.

    Raises:
        UnknownKind: no handler is registered for the kind.
        InvalidPayload: the payload does not fit the handler or cannot be stored.
        AssertionError: the attempt failed without an exception of its handler's.

    """
    job_type = kind if isinstance(kind, JobType) else registry.get_job(names_of(kind)[0])
    bound = job_type.signature.bind(job_type.kind, args, payload)
    text = payloads.encode(bound, max_bytes=conf.get().max_payload_bytes)
    attempts = job_type.options.max_attempts or conf.get().max_attempts
    claim = Claim(0, job_type.kind, text, 1, 0, attempts, 1, job_type.options.queue)
    alias, witness = router.db_for_write(Job), Witness()
    line = Line(alias)
    run = async_to_sync(execution.arun) if job_type.is_async else execution.run
    # What is raised here takes the writes of an atomic job back, as in a worker.
    with transaction.atomic(using=alias) if job_type.atomic else nullcontext():
        outcome = run(claim, "perform()", witness, line=line)
        if isinstance(witness.error, Exception):
            raise witness.error
        if failure := failure_of(Ran(outcome, None)):
            raise failure
    if isinstance(outcome, Done) and outcome.result is not None:
        return json.loads(outcome.result)
    return None
