"""What a test expects of a job, and in what a job differs from it.

Invariant: what is expected is what some job could have, so that an assertion always says something.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from django.db.models import Model

from django_pgjobs import conf, options, payloads, subjects
from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.job_types import refuse_unknown
from django_pgjobs.models import Job
from django_pgjobs.options import Options
from django_pgjobs.testing import comparing
from django_pgjobs.testing.kinds import Kind, type_of

RunAt = datetime.datetime | tuple[datetime.datetime, datetime.datetime]

_OPTIONS = {"queue", "priority", "delay"}  # which are given to a job as they are given here


class Wanted(TypedDict, total=False):
    """What a test says of a job."""

    payload: Mapping[str, Any]
    queue: str
    priority: int
    run_at: RunAt
    delay: float | datetime.timedelta
    subject: Model


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a job must be like; what is None may be anything."""

    payload: dict[str, Any] | None = None  # as it is stored
    queue: str | None = None
    priority: int | None = None
    run_at: RunAt | None = None
    delay: datetime.timedelta | None = None
    subject: tuple[str, str] | None = None

    @classmethod
    def of(cls, kind: Kind, wanted: Wanted) -> Expected:
        """Read what a test says, as a job of this kind would have it.

        Raises:
            InvalidOption, InvalidPayload: no such job could be.

        """
        refuse_unknown("A job", wanted, Wanted.__annotations__)
        expected: dict[str, Any] = {**wanted}
        for name, value in expected.items():
            if value is None:
                raise InvalidOption(
                    f"{name} must be what a job is to have, got None. Leave it out if it may be anything."
                )
        given = {name: expected[name] for name in _OPTIONS & expected.keys()}
        seconds = Options(**given).seconds
        if "delay" in wanted:
            expected["delay"] = datetime.timedelta(seconds=seconds)
        if "run_at" in wanted:
            _check_run_at(wanted["run_at"])
        if "payload" in wanted:
            expected["payload"] = _stored(kind, wanted["payload"])
        if "subject" in wanted:
            expected["subject"] = subjects.identify(wanted["subject"])
        return cls(**expected)

    def __str__(self) -> str:
        shown = {name: _shown(value) for name, value in vars(self).items() if value is not None}
        if self.payload is not None:
            shown["payload"] = comparing.shown(self.payload)
        return " with " * bool(shown) + ", ".join(f"{name} {text}" for name, text in shown.items())

    def differences(self, job: Job) -> list[str]:
        """Say in what the job is not as expected."""
        is_ = {
            "queue": job.queue,
            "priority": job.priority,
            "delay": job.run_at - job.created_at,
            "subject": (job.subject_type, job.subject_id),
        }
        found = [
            f"{name} is {_shown(value)}, not {_shown(expected)}"
            for name, value in is_.items()
            if (expected := getattr(self, name)) is not None and value != expected
        ]
        if self.run_at is not None and not _is_in(job.run_at, self.run_at):
            found.append(f"run_at is {_shown(job.run_at)}, not {_shown(self.run_at)}")
        if self.payload is not None:
            found += comparing.differences(job.payload, self.payload)
        return found


def _stored(kind: Kind, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a payload as rows have it; a name that no argument has is never found."""
    text = payloads.encode(payload, max_bytes=conf.get().max_payload_bytes)
    if job_type := type_of(kind):
        job_type.signature.check_names("payload", payload)
    return dict(json.loads(text))


def _check_run_at(run_at: Any) -> None:
    times = run_at if isinstance(run_at, tuple) else (run_at, run_at)
    for time in times:
        options.check_run_at(time)
    if len(times) != 2 or times[0] > times[1]:  # noqa: PLR2004 -- a pair
        raise InvalidOption(
            f"run_at must be one time, or the earliest and the latest, got {run_at!r:.200}. "
            "Give the earlier one first."
        )


def _is_in(run_at: datetime.datetime, expected: RunAt) -> bool:
    if isinstance(expected, tuple):
        earliest, latest = expected
        return earliest <= run_at <= latest
    return run_at == expected


def _shown(value: object) -> str:
    """Show the value of a column: times by their clock, two of them as a range, a subject by its name."""
    if isinstance(value, tuple):
        joint = " " if isinstance(value[0], str) else " to "
        return joint.join(map(str, value)) if value[0] else "absent"
    return json.dumps(value) if isinstance(value, str) else str(value)
