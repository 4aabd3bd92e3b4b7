"""Claims that were lost with their transaction are made again: exactly these, once, without waiting."""

from __future__ import annotations

import logging

import pytest
from django.db import transaction

from django_pgjobs import charges, claims, execution
from django_pgjobs.attempts import Held
from django_pgjobs.board import Board
from django_pgjobs.charges import Charges, Losses
from django_pgjobs.claims import Claim
from django_pgjobs.leases import Lease
from django_pgjobs.models import Job
from tests.db.rows import changed, execute, make, make_worker, row
from tests.db.sessions import in_thread

MOST = 2**31 - 1


@pytest.mark.django_db
@pytest.mark.parametrize(("before", "number"), [(0, 1), (6, 7), (MOST, 1)])
def test_the_claim_gets_the_number_that_it_had(before, number):
    job = make(claims=before, attempts=2)
    untouched = row(make(claims=before))

    assert claims.retake(execute, 7, [(job.id, number)]) == ([(job.id, number)], [])

    job.refresh_from_db()
    assert (job.status, job.locked_by, job.claims, job.attempts) == ("running", 7, number, 3)
    assert not changed(untouched, row(Job(pk=untouched["id"])))


@pytest.mark.django_db
@pytest.mark.parametrize("status", ["pending", "running", "done", "failed", "cancelled"])
@pytest.mark.parametrize("number", [1, 3])
def test_what_has_gone_on_is_left_alone(status, number):
    job = make(status, claims=1)
    before = row(job)

    assert claims.retake(execute, 8, [(job.id, number)]) == ([], [])
    assert row(job) == before


@pytest.mark.django_db
def test_a_retake_whose_answer_was_lost_is_told_with_the_next_one():
    job = make()
    token = (job.id, 1)
    claims.retake(execute, 7, [token])
    before = row(job)

    assert claims.retake(execute, 7, [token]) == ([token], [])
    assert row(job) == before, "it is the same claim"
    assert claims.retake(execute, 8, [token]) == ([], []), "of that worker alone"
    assert claims.retake(execute, 7, [(job.id, 2)]) == ([], []), "and of no later claim"


@pytest.mark.django_db(transaction=True)
def test_a_locked_row_is_not_waited_for_and_given_up_after_a_while(monkeypatch, caplog):
    job = make()
    lost = Charges[str](7)
    lost.add((job.id, 1), "it")

    def try_twice():
        assert lost.retake(execute) == ([], [])
        monkeypatch.setattr(charges, "PATIENCE", 0.0)
        return lost.retake(execute)

    with transaction.atomic():
        Job.objects.select_for_update().get()
        with in_thread(try_twice) as result:
            assert result() == ([], [])
        lost._until[job.id, 1] = 0.0
        with in_thread(lambda: lost.retake(execute)) as result, caplog.at_level(logging.WARNING):
            assert result() == ([], ["it"])
    assert not lost
    assert f"An attempt of job {job.id} cannot be counted: its row stays locked." in caplog.text


@pytest.mark.django_db
def test_each_is_given_back_once():
    jobs = [make(), make("done")]
    lost = Charges[str](7)
    for job in jobs:
        lost.add((job.id, 1), job.status)

    assert lost.retake(execute) == (["pending"], ["done"])
    assert lost.retake(execute) == ([], [])


@pytest.mark.django_db(transaction=True)
def test_a_claim_that_is_lost_again_after_it_was_given_up_is_decided_again(monkeypatch):
    """Nothing of it was committed, so it has the token that it had; who waits must not wait for ever."""
    monkeypatch.setattr(charges, "PATIENCE", -1.0)
    job, decided = make(), []
    lease = Lease(make_worker().id, "w", Board.create(2))
    losses = Losses(lease, {}, decided.append)
    claim = Claim(job.id, job.kind, "{}", 1, 0, 5, 1)

    def lose():
        losses.add(Held(claim, 0, None), execution.failed(claim, RuntimeError(), "w"))
        return losses.retake(execute)

    with transaction.atomic():
        Job.objects.select_for_update().get()
        with in_thread(lose) as result:
            assert result() == []
    assert decided == [(job.id, 1)], "given up"
    assert [failed.claim for failed in lose()] == [claim]
    assert decided == [(job.id, 1)] * 2
    lose()
    assert decided == [(job.id, 1)] * 3, "heard of once more, after it was decided"
