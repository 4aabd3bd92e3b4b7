"""Each planted fault names the tests that catch it, and those are there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.faults import FAULTS
from tests.mutants import CAUGHT_BY, CAUGHT_BY_THE_MODEL, MODEL

CONDITIONS = {"no-death-signal"}  # no fault: a system that tests pretend to be on


def test_every_fault_names_the_tests_that_catch_it():
    assert set(CAUGHT_BY) == set(FAULTS) - CONDITIONS


def test_the_tests_that_catch_faults_are_there():
    assert set(CAUGHT_BY_THE_MODEL) <= set(CAUGHT_BY)
    for tests in (*CAUGHT_BY.values(), MODEL):
        for test in tests:
            file, _, name = test.partition("::")
            code = (Path(__file__).parents[1] / file).read_text()
            assert not name or re.search(rf"def {name.partition('[')[0]}\(", code), test
