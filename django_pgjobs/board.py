"""What a worker and its keeper tell each other without asking: some numbers in shared memory.

The keeper writes when the database last acknowledged a heartbeat. The worker writes when it last went
round, whether it is leaving, and which of its claims have started: after a death those are charged an
attempt, and the others, which never ran, are not.

Invariant: each number is 8 aligned bytes with one writer at a time, and is written before what it
announces happens. Times are those of CLOCK_MONOTONIC, which the processes of a machine share.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time

_ACKNOWLEDGED, _ANSWERED, _LEAVING, _HEADER = 0, 1, 2, 3
_WORD = 8  # bytes


class Board:
    """The numbers of one worker: a header, then a slot for each claim that it may hold."""

    def __init__(self, descriptor: int) -> None:
        """Map the memory of a file that `create()` made, here or in the supervisor."""
        self.descriptor = descriptor
        words = memoryview(mmap.mmap(descriptor, 0))
        self._header = words[: _HEADER * _WORD].cast("d")
        self._started = words[_HEADER * _WORD :].cast("q")
        self._free = list(range(len(self._started)))

    @classmethod
    def create(cls, claims: int) -> Board:
        """Make a board for up to so many claims at a time, in a file without a name."""
        with tempfile.TemporaryFile() as file:
            file.truncate((_HEADER + claims) * _WORD)
            board = cls(os.dup(file.fileno()))
        board.acknowledge(time.monotonic())
        board.answer()
        return board

    def close(self) -> None:
        """Close the descriptor; the memory stays mapped while the board is used."""
        os.close(self.descriptor)

    def acknowledge(self, sent: float) -> None:
        """Note when a heartbeat was sent that the database has acknowledged since."""
        self._header[_ACKNOWLEDGED] = sent

    @property
    def acknowledged(self) -> float:
        """When the last acknowledged heartbeat was sent."""
        return self._header[_ACKNOWLEDGED]

    def answer(self) -> None:
        """Note that the worker goes round."""
        self._header[_ANSWERED] = time.monotonic()

    @property
    def answered(self) -> float:
        """When the worker last went round."""
        return self._header[_ANSWERED]

    def leave(self) -> None:
        """Note that the worker will exit when its jobs are done, and wants to be replaced."""
        self._header[_LEAVING] = 1.0

    @property
    def leaving(self) -> bool:
        """Whether the worker wants to be replaced."""
        return self._header[_LEAVING] > 0

    def take(self) -> int:
        """Take a slot for a claim. One thread takes slots and gives them back."""
        return self._free.pop()

    def start(self, slot: int, job: int) -> None:
        """Note that the claim of `job` starts now; called by the thread that runs it."""
        self._started[slot] = job

    def give_back(self, slot: int) -> None:
        """Forget a claim that is settled or released."""
        self._started[slot] = 0
        self._free.append(slot)

    @property
    def started(self) -> list[int]:
        """The ids of the jobs that have started and are not known to be settled."""
        return [job for job in self._started if job]
