"""Break everything for a while, heal it, and demand that no promise was broken: `make chaos`.

    make chaos SECONDS=600 SEED=7

The exit status is 1 if one was. The seed decides what is attacked, in which order and for how long;
what the machine makes of it differs from run to run.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import django

from example_project.postgres import EmbeddedPostgresError

SHOWN = 50  # violations


def main() -> int:
    """Parse the arguments, run, report."""
    parser = argparse.ArgumentParser(prog="make chaos", description="Break everything for a while.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", default="")
    chosen = parser.parse_args()
    seed = chosen.seed or str(random.SystemRandom().randrange(10**6))
    if sys.platform != "linux":
        sys.exit("make chaos needs Linux: it looks for the children of a process in /proc.")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from tests.chaos.run import run  # noqa: PLC0415 -- it needs the apps

    print(f"chaos: seed {seed}, {chosen.seconds:g} s", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="pgjobs-chaos-"))
    try:
        report = run(folder, seed, chosen.seconds)
    except EmbeddedPostgresError as error:
        sys.exit(f"make chaos needs a PostgreSQL of its own: {error}")
    print("\n".join(report.lines))
    if not report.violations:
        shutil.rmtree(folder)
        print("no violation")
        return 0
    for violation in report.violations[:SHOWN]:
        print(f"VIOLATION {violation}")
    print(f"{len(report.violations)} violations. SEED={seed} makes the same attacks again.")
    print(f"What the processes said, and the ledger, are in {folder}.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
