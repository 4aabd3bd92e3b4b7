"""Any sequence of enqueues, claims, outcomes, deaths and verbs leaves the rows that the reference says.

    PGJOBS_TEST_EXAMPLES=500 make test ARGS=tests/model

tries so many other sequences for each kind, and prints in its shortest form one that fails.
"""

from __future__ import annotations

import logging
import os
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model import driver
from tests.model.machine import KINDS, Lifecycle

pytestmark = pytest.mark.newest

VARIABLE = "PGJOBS_TEST_EXAMPLES"
EXAMPLES, STEPS = 15, 40


def profile():
    """A fixed set of examples, or as many others as the environment asks for."""
    asked = int(os.environ.get(VARIABLE, "0"))
    phases = set(Phase) - {Phase.explain}
    if not asked:
        phases -= {Phase.shrink}  # minutes of it: that it fails is told at once
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
@pytest.mark.parametrize("about", KINDS)
def test_rows_are_what_the_reference_says_whatever_happens_to_them(kinds, settings, about):
    settings.PGJOBS = driver.PGJOBS
    driver.declare_kinds()
    logging.disable(logging.CRITICAL)
    try:
        run_state_machine_as_test(partial(Lifecycle, about), settings=profile())
    finally:
        logging.disable(logging.NOTSET)
