"""The example shop to play with: a web server and a worker until Ctrl-C, on a database of their own."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NoReturn

from example_project.postgres import EmbeddedPostgresError
from example_project.processes import POLL, DemoError, exit_on_signals
from example_project.stage import STAFF, set_up

if TYPE_CHECKING:
    from example_project.processes import Process, Processes


def follow(worker: Process, processes: Processes) -> NoReturn:
    """Print what the worker logs, until something ends."""
    with worker.log.open() as log:
        while True:
            processes.check()
            print(log.read(), end="", flush=True)
            time.sleep(POLL)


def main() -> int:
    """Run the shop; return the exit status."""
    exit_on_signals()
    print("Setting up a shop")
    try:
        with set_up() as stage:
            worker = stage.processes.start("worker", "runjobs")
            print("  a worker       manage.py runjobs\n")
            print(f"Open the shop  {stage.site}")
            print("and order something: the page of your order shows its jobs at work.\n")
            print(f"  the admin      {stage.site}admin/  user {STAFF}, password {stage.password}")
            print(f"  its files      {stage.processes.folder}: receipts and invoices\n")
            print("Ctrl-C ends it and deletes everything. What the worker says:\n", flush=True)
            follow(worker, stage.processes)
    except KeyboardInterrupt:
        print("\nStopped; nothing is left behind.")
        return 0
    except (DemoError, EmbeddedPostgresError, OSError) as error:
        print(f"\nThe shop cannot be opened. {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
