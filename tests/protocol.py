"""Just enough of PostgreSQL's protocol to know when a statement has been committed.

Invariant: a statement's answer counts as committed when it is complete, free of errors, and leaves no
transaction open. Until then the one who asks may hold it back or send it on, as it likes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_HEAD = 5  # bytes of each message before its text: the type, and a length that includes itself
_ERROR, _READY = ord("E"), ord("Z")
_IDLE = ord("I")


# A client that prepares a statement says its text once, and then its name. Each fits into one piece.
_PARSE = re.compile(rb"P.{4}(\w+)\0([^\0]*)\0", re.DOTALL)
_BIND = re.compile(rb"B.{4}\w*\0(\w+)\0", re.DOTALL)


def spell_out(request: bytes, prepared: dict[bytes, bytes]) -> bytes:
    """Add the text of each statement that is only named; take away what is only being prepared."""
    prepared.update(_PARSE.findall(request))
    return _PARSE.sub(b"", request) + b"".join(
        prepared.get(name, b"") for name in _BIND.findall(request)
    )


@dataclass(frozen=True, eq=False)
class Moment:
    """Which commit is meant: what its statement says, and what the server's answer must hold."""

    statement: bytes
    answer: bytes = b""


@dataclass
class Watch:
    """One connection on which a moment is waited for; the answers wait here for their end."""

    moment: Moment
    asked: bool = False  # the statement has been sent
    answered: bool = False  # and an answer has held what was wanted
    held: bytearray = field(default_factory=bytearray)
    _read: int = 0

    def sees_request(self, data: bytes) -> None:
        """Take note of what the client has sent."""
        self.asked = self.asked or self.moment.statement in data

    def sees_answer(self, data: bytes) -> bool:
        """Hold an answer back; return whether it is the commit that is waited for."""
        self.held += data
        failed = False
        while message := self._next():
            kind, text = message
            failed = failed or kind == _ERROR
            self.answered = self.answered or self.moment.answer in text
            if kind == _READY:
                if text[0] == _IDLE and self.answered and not failed:
                    return True
                if text[0] == _IDLE:  # nothing of what was asked has been committed
                    self.asked = self.answered = False
        return False

    def take(self) -> bytes:
        """Take what may be sent on: all of it, if it ends with a complete message."""
        if self._read < len(self.held):
            return b""
        data, self._read = bytes(self.held), 0
        self.held.clear()
        return data

    def _next(self) -> tuple[int, bytes] | None:
        start = self._read
        if len(self.held) < start + _HEAD:
            return None
        end = start + 1 + int.from_bytes(self.held[start + 1 : start + _HEAD])
        if len(self.held) < end:
            return None
        self._read = end
        return self.held[start], bytes(self.held[start + _HEAD : end])
