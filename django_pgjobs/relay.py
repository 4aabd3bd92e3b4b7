"""Carry requests to stop to the running handlers of a worker, and their progress to the rows.

The pump does so on its own connection, also when it has no room for a claim; no handler's is used.

Invariant: at most one statement each POLL, beside those for the last words of attempts that have ended,
and none while no handler runs that can be asked to stop. What is written is fenced by the claim's token.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from django_pgjobs import statements
from django_pgjobs.attempts import Held
from django_pgjobs.claims import Claim, Token
from django_pgjobs.handlers import Handlers
from django_pgjobs.lines import Line, Progress
from django_pgjobs.sessions import DATABASE_ERRORS, Execute, reason, refused

logger = logging.getLogger(__name__)


class Answer(NamedTuple):
    """What the rows say: which tokens have their progress in them, and which are asked to stop."""

    written: set[Token]
    asked: set[Token]


class Relay:
    """What goes between handlers and rows while they run. One thread uses it."""

    def __init__(self, worker: int, poll: float) -> None:
        """Look for requests every `poll` seconds."""
        self._worker = worker
        self._poll = poll
        self._next = 0.0
        self._listened = False  # whether anybody did when it looked last
        self._ended: list[tuple[Held, Line]] = []  # with last words

    @property
    def seconds(self) -> float:
        """How long until it must be called again."""
        return max(0.0, self._next - time.monotonic()) if self._listened else math.inf

    def note_end(self, held: Held) -> None:
        """Take note that this attempt has ended; it must not be settled before the next `carry()`."""
        if held.line is not None and held.line.unwritten():
            self._ended.append((held, held.line))

    def carry(self, execute: Execute, handlers: Handlers) -> None:
        """Carry what there is, if it is time."""
        now = time.monotonic()
        listening: list[tuple[Held, Line]] = []
        if now >= self._next:
            listening = handlers.listening
            self._next, self._listened = now + self._poll, bool(listening)
        elif not self._ended:
            return
        lines = [(held, line, line.unwritten()) for held, line in self._ended]
        lines += [(held, line, line.unwritten(now)) for held, line in listening]
        words = [(held.claim, line, progress) for held, line, progress in lines if progress]
        unasked = {held.claim.token: held for held, line in listening if not line.asked}
        if not (words or unasked):
            return
        said = [(claim, progress) for claim, _, progress in words]
        try:
            answer = exchange(execute, self._worker, said, list(unasked))
        except DATABASE_ERRORS as error:
            if not refused(error):
                raise  # on the next connection it is tried again
            # A trigger of the project's, say. No settle may wait for it.
            logger.warning("Requests to stop and progress were refused: %s", reason(error))
            answer = Answer(set(), set())
        self._ended.clear()
        for claim, line, progress in words:
            if claim.token in answer.written:
                line.note_written(progress, now)
        for token in answer.asked & unasked.keys():
            handlers.ask(unasked[token])


def exchange(
    execute: Execute,
    worker: int,
    said: Sequence[tuple[Claim, Progress]],
    listening: Sequence[Token] = (),
) -> Answer:
    """Write the progress of some claims, and look which of those listening are to stop.

    Where a row is locked, or belongs to another claim by now, nothing is written.
    """
    rows = [
        {
            "id": claim.id,
            "claims": claim.claims,
            "progress": {**progress._asdict(), "attempt": claim.attempts},
        }
        for claim, progress in said
    ]
    ids = [job for job, _ in listening]
    params = {"worker": worker, "rows": json.dumps(rows), "listening": ids}
    answer = Answer(set(), set())
    for job, claims, is_asked in execute(statements.EXCHANGE, params):
        (answer.asked if is_asked else answer.written).add((job, claims))
    return answer
