"""Any sequence of enqueues, claims, outcomes, deaths and verbs leaves the rows that the reference says.

    PGJOBS_TEST_EXAMPLES=5000 make test ARGS=tests/model PARALLEL=0

tries so many other sequences, and prints in its shortest form the one that fails.
"""

from __future__ import annotations

import logging
import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests import faults
from tests.model import driver
from tests.model.machine import Lifecycle

VARIABLE = "PGJOBS_TEST_EXAMPLES"
EXAMPLES, STEPS = 100, 40


def profile():
    """A fixed set of examples, or as many others as the environment asks for."""
    asked = int(os.environ.get(VARIABLE, "0"))
    phases = set(Phase) - {Phase.explain}
    if faults.VARIABLE in os.environ:
        phases -= {Phase.shrink}  # that it fails is all that is asked
    return settings(
        max_examples=asked or EXAMPLES,
        stateful_step_count=STEPS,
        derandomize=not asked,
        database=None,
        deadline=None,
        phases=phases,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.django_db(transaction=True)
def test_rows_are_what_the_reference_says_whatever_happens_to_them(kinds, settings):
    settings.PGJOBS = driver.PGJOBS
    driver.declare_kinds()
    logging.disable(logging.CRITICAL)
    try:
        run_state_machine_as_test(Lifecycle, settings=profile())
    finally:
        logging.disable(logging.NOTSET)
