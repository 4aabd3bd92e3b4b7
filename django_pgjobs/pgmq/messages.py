"""What comes out of a queue, and how a message is written as JSON and read again.

A message is any JSON, written as payloads of jobs are: with their extensions (dates, Decimal, UUID, model
instances) and their refusals. Other programs write messages too, in ways of their own.

Invariant: reading never fails. What is no message of ours arrives as the JSON that it is, so that one odd
message takes none of its neighbours away.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django_pgjobs import conf, payloads
from django_pgjobs.exceptions import InvalidPayload
from django_pgjobs.refusals import shown


@dataclass(frozen=True)
class Message:
    """One message, as it was when it was read.

    `message` and `headers` are what the sender gave. Where that names a row that is gone, or has a `$type` of
    another program, it is the plain JSON; where Python cannot read the JSON at all, its text.
    """

    id: int
    read_ct: int
    enqueued_at: datetime.datetime
    vt: datetime.datetime
    message: Any
    headers: Any


@dataclass(frozen=True)
class Metrics:
    """What pgmq counts of one queue. Ages are whole seconds, None where the queue is empty."""

    queue: str
    length: int
    visible: int
    newest_age: int | None
    oldest_age: int | None
    total: int
    scraped_at: datetime.datetime


def written(message: object) -> str:
    """Return a message as JSON text.

    Raises:
        InvalidPayload: it cannot be stored, with the path of what is wrong.

    """
    return payloads.encode_value(message, max_bytes=conf.get().max_payload_bytes, root="message")


def written_headers(headers: object) -> str | None:
    """Return the headers as JSON text, None for none.

    Raises:
        InvalidPayload: they are no dict, or cannot be stored.

    """
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise InvalidPayload(
            f"headers must be a dict or None, got {shown(headers)}. Name each value."
        )
    return payloads.encode_value(
        dict(headers), max_bytes=conf.get().max_payload_bytes, root="headers"
    )


def read(text: str | None, *, plain: bool = False) -> Any:
    """Return what a JSON text says, whoever wrote it; `plain` as JSON alone, so that it can name no row."""
    if text is None:
        return None
    if not plain:
        with suppress(InvalidPayload):
            return payloads.decode_value(text, root="message")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # an int of too many digits, or too deep
        return text
