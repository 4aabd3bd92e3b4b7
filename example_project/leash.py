"""The process that cleans up after the demo, whatever ends the demo.

`processes.py` runs this file as a program of its own and tells it, in lines, which process groups it
started and which have ended. The end of the input means that the demo has ended too, in good order or
not: what still runs is killed and the demo's folder is deleted. Needs nothing outside the standard
library.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

TRIES = 50


def main() -> None:
    """Wait for the end of the input, then clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the end of the demo is what counts
    folder = Path(sys.argv[1])
    running: set[int] = set()
    for line in sys.stdin:
        verb, group = line.split()
        (running.add if verb == "started" else running.discard)(int(group))
    for group in running:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
        time.sleep(0.1)  # a process that was killed just now may have written one more file


if __name__ == "__main__":
    main()
