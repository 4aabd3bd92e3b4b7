"""Inside a measured process: a worker beside it, when its jobs start, and what it costs.

Both contenders are measured by this same code. The costs are read from Linux's /proc.
"""

from __future__ import annotations

import datetime
import itertools
import os
import random
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

STARTS = "BENCHMARK_STARTS"  # names the pipe in which a handler notes its start
LONGEST = 60.0  # seconds until a job has started: far more than any needs
WARM_UP = 5  # jobs before the first that counts
SETTLING = 5.0  # seconds until a worker that has just started is idle
PAUSES = 0.06, 0.16  # seconds between two jobs: the worker is idle again, and nothing is in step
POLLING_PAUSES = 0.0, 1.0  # likewise, for workers that look once a second
READ: LiteralString = "select repeat('x', 1000000)"  # what a job of `memory` reads
SAMPLES = 0.05  # seconds between two looks at the memory


def note_start(i: int) -> None:
    """Note when the handler of job `i` started; the clock is the same in all processes."""
    line = f"{i} {time.monotonic()}\n"
    pipe = os.open(os.environ[STARTS], os.O_WRONLY)
    os.write(pipe, line.encode())
    os.close(pipe)


@contextmanager
def worker(command: Sequence[str], **environment: str) -> Iterator[int]:
    """Run Python with this command line beside the block; give its process id."""
    process = subprocess.Popen(  # noqa: S603 -- our own modules
        [sys.executable, *command], env={**os.environ, **environment}, stdout=subprocess.DEVNULL
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(LONGEST)


def delays(
    command: Sequence[str],
    enqueue: Callable[[int], float],
    jobs: int,
    pauses: tuple[float, float] = PAUSES,
) -> list[float]:
    """Return the seconds from each commit, which `enqueue` tells, to the start of the handler."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "starts")
        os.mkfifo(path)
        pipe = os.open(path, os.O_RDWR)  # never at its end, whoever has it open
        with worker(command, **{STARTS: path}):
            for i in range(WARM_UP + jobs):
                time.sleep(random.uniform(*pauses))  # noqa: S311
                committed = enqueue(i)
                if not select.select([pipe], [], [], LONGEST)[0]:
                    raise RuntimeError(f"job {i} must start within {LONGEST:g} s, got nothing.")
                started, at = os.read(pipe, 1_000).split()
                if int(started) != i:
                    raise RuntimeError(f"job {i} must start next, got {started.decode()}.")
                found.append(float(at) - committed)
        os.close(pipe)
    return found[WARM_UP:]


def idle(command: Sequence[str], database: str, seconds: float) -> dict[str, float]:
    """Return what a worker without work costs in so many seconds."""
    watched = conninfo_to_dict(database)["dbname"]
    counted = "select xact_commit + xact_rollback from pg_stat_database where datname = %s"
    open_now = "select count(*) from pg_stat_activity where datname = %s"
    # From another database: what is asked here must not be counted there.
    elsewhere = make_conninfo(database, dbname="postgres")
    with psycopg.connect(elsewhere, autocommit=True) as server, worker(command) as pid:

        def ask(query: LiteralString) -> int:
            return int(server.execute(query, [watched]).fetchall()[0][0])

        time.sleep(SETTLING)
        processes = family(pid)
        transactions, cpu = ask(counted), cpu_seconds(processes)
        time.sleep(seconds)
        return {
            "transactions": ask(counted) - transactions,
            "cpu": cpu_seconds(processes) - cpu,
            "memory": resident_mb(processes),
            "connections": ask(open_now),
        }


def growth(command: Sequence[str], jobs: int, finished: LiteralString) -> dict[str, float]:
    """Return how much a worker that ends by itself grows in MB, from a quarter of the jobs to the end."""
    samples: list[tuple[datetime.datetime, float]] = []
    with worker(command) as pid:
        while processes := _living(pid):
            samples.append((datetime.datetime.now(datetime.UTC), resident_mb(processes)))
            time.sleep(SAMPLES)
    with psycopg.connect(os.environ["BENCHMARK_URL"]) as connection:
        moments = connection.execute(finished).fetchall()
    total = list(itertools.accumulate(count for _, count in moments))
    if total[-1:] != [jobs]:
        raise RuntimeError(f"{jobs} jobs must finish, got {total[-1:]}.")
    start = next(at for (at, _), count in zip(moments, total, strict=True) if count * 4 >= jobs)
    within = [used for at, used in samples if start <= at <= moments[-1][0]]
    running = within or [samples[-1][1]]  # a few jobs end between two looks
    # The first and the last of these may fall into a peak: the medians of the first and last fifth.
    fifth = max(1, len(running) // 5)
    first, last = statistics.median(running[:fifth]), statistics.median(running[-fifth:])
    return {"growth": (last - first) / 0.8 * 0.75, "largest": max(used for _, used in samples)}


def _living(pid: int) -> list[int]:
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return [] if state == "Z" else family(pid)


def family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for file in files for child in file.read_text().split()]
    return [pid, *(one for child in children for one in family(child))]


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return what all threads of these processes have used so far."""
    files = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def resident_mb(pids: Sequence[int]) -> float:
    """Return the memory of these processes; what they share is counted for each."""
    pages = 0
    for pid in pids:
        with suppress(FileNotFoundError):  # it has ended
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
