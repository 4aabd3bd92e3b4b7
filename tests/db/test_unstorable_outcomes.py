"""The last line of defence: an outcome that the server refuses fails its own job and no other."""

from __future__ import annotations

import pytest

from django_pgjobs import outcomes
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Done
from tests.db.rows import claim_of, ids, make, row


def unstorable(claim):
    return Done(claim, '"\\u0000"')  # encoded past the replacement of NUL, for once


@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.django_db(transaction=True)
def test_an_outcome_that_the_server_refuses_fails_that_job_alone(place, session):
    jobs = [make("running") for _ in range(7)]
    given = [Done(claim_of(job), "1") for job in jobs]
    given[place] = unstorable(claim_of(jobs[place]))

    assert not any(outcomes.settle(session.execute, 7, given))

    [failed] = Job.objects.failed()
    assert failed.id == jobs[place].id
    assert "\\u0000" in failed.last_error
    assert failed.errors[0]["attempt"] == 1
    assert ids(Job.objects.done().filter(result=1)) == [j.id for j in jobs if j.id != failed.id]


@pytest.mark.django_db(transaction=True)
def test_an_outcome_that_the_server_refuses_is_fenced_too(session):
    job = make("running", locked_by=8)

    [stale] = outcomes.settle(session.execute, 7, [unstorable(claim_of(job))]).stale

    assert stale.claim.id == job.id
    assert row(job)["status"] == "running"
