"""Inside a measured process: answer one request of the benchmark, and time loops.

Both contenders are timed by this same code. A request is a verb and its arguments as JSON on the
command line; the answer is one line of JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

WARM_UP = 50  # calls of each thread before the clock starts: connections, caches, prepared plans


def answer(verbs: Mapping[str, Callable[..., Mapping[str, Any]]]) -> None:
    """Do what the command line asks for and print the outcome."""
    verb, arguments = sys.argv[1:]
    print(json.dumps(verbs[verb](**json.loads(arguments))))


def calls_a_second(
    threads: int, seconds: float, connect: Callable[[], Callable[[int], object]]
) -> float:
    """Return how often `threads` threads together call what `connect` gave each of them."""
    counts: list[int] = []
    failures: list[BaseException] = []
    started = threading.Barrier(threads + 1)

    def loop() -> None:
        try:
            call = connect()
            for i in range(WARM_UP):
                call(i)
            started.wait()
            end, count = time.perf_counter() + seconds, 0
            while time.perf_counter() < end:
                call(count)
                count += 1
            counts.append(count)
        except BaseException as error:
            failures.append(error)
            started.abort()
            raise

    running = [threading.Thread(target=loop) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        started.wait()
    except threading.BrokenBarrierError:
        raise RuntimeError("a thread could not start") from failures[0]
    begin = time.perf_counter()
    for thread in running:
        thread.join()
    elapsed = time.perf_counter() - begin
    if failures:
        raise RuntimeError("a thread failed") from failures[0]
    return sum(counts) / elapsed


def calls_of_processes(
    processes: int, seconds: float, connect: Callable[[], Callable[[int], object]]
) -> float:
    """Return how often `processes` forks of this process together call what `connect` gives each."""
    fork = multiprocessing.get_context("fork")
    started, rates = fork.Barrier(processes), fork.SimpleQueue()

    def connected() -> Callable[[int], object]:
        call = connect()
        started.wait()  # all of them warm up, and then count, at the same time
        return call

    running = [
        fork.Process(target=lambda: rates.put(calls_a_second(1, seconds, connected)))
        for _ in range(processes)
    ]
    for process in running:
        process.start()
    total: float = sum(rates.get() for _ in running)
    for process in running:
        process.join()
    return total


def pages_of(explained: Any) -> int:
    """Return the pages that a statement touched, from the answer to EXPLAIN with buffers as JSON."""
    found = explained[0][0]
    [plan] = json.loads(found) if isinstance(found, str) else found
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


def peak_memory() -> float:
    """Return the largest resident size that this process has had, in MB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
