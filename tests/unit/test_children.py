"""Orders reach the child that they are for, or nobody."""

from __future__ import annotations

import math
import os
import sys

import pytest

from django_pgjobs.children import Child
from django_pgjobs.leases import Lease
from django_pgjobs.resources import MemoryKills
from tests.waiting import eventually


@pytest.fixture
def gone(monkeypatch) -> Child:
    """A child that has exited, and is not buried yet."""
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-c", "pass"])
    child = Child.start(1)
    assert child.process.wait() == 0
    return child


def test_who_died_before_it_was_introduced_leaves_its_name_to_no_other(gone):
    descriptor = gone.orders.fileno()
    eventually(lambda: gone.bury(MemoryKills()))
    read, write = os.pipe()
    try:
        os.dup2(write, descriptor)  # as the system gives it to the next child
        os.set_blocking(read, False)
        gone.introduce(Lease(7, "host:7", gone.board))
        gone.order("stop")
        with pytest.raises(BlockingIOError):
            os.read(read, 100)
    finally:
        for number in {read, write, descriptor}:
            os.close(number)
    assert gone.lease is not None, "so its death is recorded"
    assert gone.told < math.inf
