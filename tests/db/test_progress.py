"""Progress as a project sees it: in `meta`, in tests, and on a page."""

from __future__ import annotations

import pytest

from django_pgjobs import InvalidOption, job
from django_pgjobs.models import Job
from django_pgjobs.testing import drain

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]


@pytest.mark.parametrize("ending", ["returns", "fails", "is cancelled"])
def test_the_last_one_of_an_attempt_stays(ending):
    @job(takes_context=True, max_attempts=1)
    def export(context):
        for n in range(1, 4):
            context.progress(n / 4, f"{n} of 4")
        if ending == "fails":
            raise ValueError
        if ending == "is cancelled":
            Job.objects.cancel()
            context.check()

    export.enqueue()
    drain()
    said = Job.objects.get().meta["progress"]
    assert (said["fraction"], said["text"], said["attempt"]) == (0.75, "3 of 4", 1)


def test_async_handlers_say_it_as_well():
    @job(takes_context=True)
    async def export(context):
        context.progress(0.5)

    export.enqueue()
    drain()
    assert Job.objects.get().meta["progress"]["fraction"] == 0.5


def test_atomic_jobs_say_nothing():
    @job(takes_context=True, atomic=True)
    def export(context):
        context.progress(0.5)

    export.enqueue()
    drain()
    assert (Job.objects.get().status, Job.objects.get().meta) == ("done", {})


def test_a_bad_one_is_an_error_of_the_handler():
    @job(takes_context=True, max_attempts=1)
    def export(context):
        context.progress(50)

    export.enqueue()
    drain()
    failed = Job.objects.get()
    assert failed.status == "failed"
    assert InvalidOption.__name__ in failed.last_error
