"""What the probe handlers did, in a file beside the database, so that no restart or rollback erases it.

Each note is one line, appended by one write: lines of several processes never mix, and what a process
wrote before it was killed stays.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

VARIABLE = "PGJOBS_TEST_LEDGER"


class Entry(NamedTuple):
    """One note: `event` (start, end, ...) about the job that was given this `key`."""

    event: str
    key: str
    pid: int
    thread: int
    at: float


def note(event: str, key: object) -> None:
    """Append a note; for handlers. Without a ledger nothing is noted."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    line = f"{event} {key} {os.getpid()} {threading.get_ident()} {time.time():.6f}\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def note_start(key: object) -> None:
    """Note a start, and `overlap` if an earlier one of this key is still at work.

    It is, unless it noted `stopped` or its process has ended.
    """
    if path := os.environ.get(VARIABLE):
        stopped = {entry.pid for entry in Ledger(Path(path)).entries("stopped", key)}
        for entry in Ledger(Path(path)).starts(key):
            if entry.pid not in stopped and _lives(entry.pid):
                note("overlap", key)
    note("start", key)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Ledger:
    """The notes of one test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def entries(self, event: str | None = None, key: object = None) -> list[Entry]:
        """Return the notes in the order of their writing."""
        found = []
        for line in self.path.read_text().splitlines():
            name, about, pid, thread, at = line.split(" ")
            if event in (None, name) and (key is None or str(key) == about):
                found.append(Entry(name, about, int(pid), int(thread), float(at)))
        return found

    def starts(self, key: object = None) -> list[Entry]:
        """Return the starts, of one job or of all."""
        return self.entries("start", key)

    def ends(self, key: object = None) -> list[Entry]:
        """Return the regular ends, of one job or of all."""
        return self.entries("end", key)
