"""What a test expects of a job, and in what a job differs from it.

Invariant: what is shown of a payload is masked as everywhere, for the output of tests is kept too.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from django.db.models import Model

from django_pgjobs import conf, masking, options, payloads, registry, subjects
from django_pgjobs.job_types import JobType, refuse_unknown
from django_pgjobs.models import Job
from django_pgjobs.testing.kinds import Kind

RunAt = datetime.datetime | tuple[datetime.datetime, datetime.datetime]

_ABSENT = object()
_SHOWN = 200  # characters of a value
_Path = tuple[str | int, ...]


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

    payload: Mapping[str, Any] | None = None  # as it is stored
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
        run_at = wanted.get("run_at", ())
        for time in run_at if isinstance(run_at, tuple) else [run_at]:
            options.check_run_at(time)
        if isinstance(delay := wanted.get("delay"), int | float):
            expected["delay"] = datetime.timedelta(seconds=delay)
        if "payload" in wanted:
            expected["payload"] = _stored(kind, wanted["payload"])
        if "subject" in wanted:
            expected["subject"] = subjects.identify(wanted["subject"])
        return cls(**expected)

    def __str__(self) -> str:
        shown = {name: _shown(value) for name, value in vars(self).items() if value is not None}
        if self.payload is not None:
            shown["payload"] = _json(masking.masked(self.payload))
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
            found += [
                f"payload{''.join(f'[{key!r}]' for key in path)} is {_at(path, value)}, "
                f"not {_at(path, expected)}"
                for path, value, expected in _unequal(job.payload, self.payload)
            ]
        return found


def _stored(kind: Kind, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a payload as rows have it; a name that no argument has is never found."""
    job_type = registry.find(kind) if isinstance(kind, str) else kind
    if isinstance(job_type, JobType):
        job_type.signature.check_names("payload", payload)
    text = payloads.encode(payload, max_bytes=conf.get().max_payload_bytes)
    return dict(json.loads(text))


def _unequal(is_: Any, expected: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any, Any]]:
    """Give each place where they differ. Of an object only the expected names count."""
    if isinstance(is_, dict) and isinstance(expected, dict):
        for key, value in expected.items():
            yield from _unequal(is_.get(key, _ABSENT), value, (*path, key))
    elif isinstance(is_, list) and isinstance(expected, list) and len(is_) == len(expected):
        for n, pair in enumerate(zip(is_, expected, strict=True)):
            yield from _unequal(*pair, (*path, n))
    # True is 1 in Python, and not in JSON.
    elif is_ != expected or isinstance(is_, bool) != isinstance(expected, bool):
        yield path, is_, expected


def _at(path: _Path, value: Any) -> str:
    """Show what a payload has at a place, or as much of it as is no secret."""
    if value is _ABSENT:
        return "absent"
    for key in reversed(path):
        value = {str(key): value}
    value = masking.masked(value)
    for key in path:
        if isinstance(value, dict):  # a mask stands for all below it
            value = value[str(key)]
    return _json(value)


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def shown_payload(job: Job) -> str:
    """Show the payload of a job, masked."""
    return _json(masking.masked(job.payload))


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
