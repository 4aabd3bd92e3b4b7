"""What a project's own tests use: run jobs, assert what was enqueued, let time pass.

Invariant: nothing here is a fake. Jobs are rows of the test's database, and they run as in a worker.
"""

from django_pgjobs.testing.asserting import assert_enqueued, refute_enqueued
from django_pgjobs.testing.draining import Drained, drain
from django_pgjobs.testing.immediacy import immediate
from django_pgjobs.testing.performing import perform
from django_pgjobs.testing.times import make_due, travel

__all__ = [
    "Drained",
    "assert_enqueued",
    "drain",
    "immediate",
    "make_due",
    "perform",
    "refute_enqueued",
    "travel",
]
