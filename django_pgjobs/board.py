"""What a worker and its keeper tell each other without asking: some numbers in shared memory.

The keeper writes when the database last acknowledged a heartbeat. The worker writes when it last went
round, whether it is leaving, and which of its claims have started: after a death those are charged an
attempt, and the others, which never ran, are not.

Invariant: each number is 8 aligned bytes with one writer at a time, and is written before what it
announces happens. Times are those of CLOCK_MONOTONIC, which the processes of a machine share.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import time

_ACKNOWLEDGED, _ANSWERED, _LEAVING, _FINISHED, _HEADER = 0, 1, 2, 3, 4
_WORD = 8  # bytes
_SLOT = 3  # numbers: the job that started, its deadline, and its claim if that is not committed


class Board:
    """The numbers of one worker: a header, then a slot for each claim that it may hold."""

    def __init__(self, descriptor: int) -> None:
        """Map the memory of a file that `create()` made, here or in the supervisor."""
        self.descriptor = descriptor
        words = memoryview(mmap.mmap(descriptor, 0))
        self._header = words[: _HEADER * _WORD].cast("d")
        slots = words[_HEADER * _WORD :]
        part = len(slots) // _SLOT
        self._started = slots[:part].cast("q")  # ids; below zero once the job's time is over
        self._deadlines = slots[part : 2 * part].cast("d")  # monotonic; infinity for none
        self._transactions = slots[2 * part :].cast("q")  # the number of the claim; 0 if committed
        self._free = list(range(len(self._started)))

    @classmethod
    def create(cls, claims: int) -> Board:
        """Make a board for up to so many claims at a time, in a file without a name."""
        descriptor = _memory()
        os.ftruncate(descriptor, (_HEADER + _SLOT * claims) * _WORD)
        board = cls(descriptor)
        board.acknowledge(time.monotonic())
        return board

    def close(self) -> None:
        """Close the descriptor; the memory stays mapped as long as this object lives."""
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
        """When the worker last went round; 0 if it never has."""
        return self._header[_ANSWERED]

    def leave(self) -> None:
        """Note that the worker will exit when its jobs are done, and wants to be replaced."""
        self._header[_LEAVING] = 1.0

    @property
    def leaving(self) -> bool:
        """Whether the worker wants to be replaced."""
        return self._header[_LEAVING] > 0

    def finish(self) -> None:
        """Note that the worker has ended in good order: its exit is no accident."""
        self._header[_FINISHED] = 1.0

    @property
    def finished(self) -> bool:
        """Whether the worker has ended in good order."""
        return self._header[_FINISHED] > 0

    @property
    def free(self) -> int:
        """How many more claims there are slots for."""
        return len(self._free)

    def take(self) -> int:
        """Take a slot for a claim. One thread takes slots and gives them back."""
        return self._free.pop()

    def start(self, slot: int, job: int, deadline: float = math.inf) -> None:
        """Note that the claim of `job` starts now; called by the thread that runs it."""
        self._deadlines[slot] = deadline
        self._started[slot] = job

    def begin_transaction(self, slot: int, claims: int) -> None:
        """Note that the claim of what starts next is part of a transaction that is open."""
        self._started[slot] = 0
        self._transactions[slot] = claims

    def end_transaction(self, slot: int) -> None:
        """Note that the claim in this slot is committed."""
        self._transactions[slot] = 0

    def end(self, slot: int) -> None:
        """Note that the handler in this slot has ended, in time or not: that stays noted."""
        self._deadlines[slot] = math.inf

    def time_out(self, slot: int) -> None:
        """Note that the job in this slot goes on after its time is over."""
        self._started[slot] = -abs(self._started[slot])

    def forget(self, slot: int) -> None:
        """Note that the job in this slot is settled, and keep the slot."""
        self._started[slot] = 0

    def give_back(self, slot: int) -> None:
        """Forget a claim that is settled or released."""
        self._started[slot] = 0
        self._free.append(slot)

    @property
    def started(self) -> list[int]:
        """The ids of the jobs that have started and are not known to be settled."""
        return [abs(job) for job in self._started if job]

    @property
    def in_transactions(self) -> list[tuple[int, int]]:
        """The ids and numbers of claims among them that a transaction holds, or has lost."""
        pairs = zip(self._started, self._transactions, strict=True)
        return [(abs(job), claims) for job, claims in pairs if job and claims]

    @property
    def timed_out(self) -> list[int]:
        """The ids of those among them that did not stop when their time was over."""
        return [-job for job in self._started if job < 0]

    def overdue(self, since: float) -> list[int]:
        """Return the slots whose deadline was before `since`, and of which the worker says nothing."""
        return [
            slot
            for slot, job in enumerate(self._started)
            if job > 0 and self._deadlines[slot] < since
        ]


def _memory() -> int:
    """Open a file without a name: in memory on Linux, where no folder need be writable for it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("pgjobs-board")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
