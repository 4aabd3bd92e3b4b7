"""A worker holds each claim, and its slot, until the row says that it is over."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_pgjobs import execution
from django_pgjobs.attempts import Held
from django_pgjobs.board import Board
from django_pgjobs.holdings import Holdings
from django_pgjobs.leases import Lease
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Done
from tests.db.rows import claim_of, claimed, execute, ids, make, make_worker, row
from tests.db.sessions import in_thread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kinds")]

SLOTS = 5


@pytest.fixture
def lease():
    return Lease(make_worker().id, "w", Board.create(SLOTS))


@pytest.fixture
def holdings(lease):
    return Holdings(lease, execute, lambda _: None)


def hold(holdings, lease, count):
    """Claim so many new jobs, and hold them."""
    for _ in range(count):
        make()
    held = [Held(claim, lease.board.take(), None) for claim in claimed(worker=lease.worker)]
    holdings.hold(held)
    return held


def while_locked(job, call):
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=job)
        with in_thread(call) as result:
            return result()


def test_what_is_settled_is_let_go_with_its_slot_and_what_is_locked_is_settled_later(
    holdings, lease
):
    first, second = (Done(held.claim) for held in hold(holdings, lease, 2))
    holdings.unsettled += [first, second]

    assert while_locked(second.claim.id, lambda: holdings.settle(holdings.unsettled)) == [first]
    assert (len(holdings), lease.board.free, holdings.waits) == (1, SLOTS - 1, True)

    assert holdings.settle(holdings.unsettled) == [second]
    assert (len(holdings), lease.board.free, holdings.waits) == (0, SLOTS, False)


def test_an_outcome_of_a_claim_that_is_somebody_elses_by_now_is_let_go(holdings, lease):
    [held] = hold(holdings, lease, 1)
    Job.objects.update(claims=held.claim.claims + 1)
    stale = Done(held.claim)
    holdings.unsettled.append(stale)

    assert holdings.settle(holdings.unsettled) == [stale]
    assert (len(holdings), lease.board.free, holdings.waits) == (0, SLOTS, False)


def test_what_a_claim_did_not_complete_is_held_if_its_row_is_only_locked(holdings, lease):
    first, second, third = (Done(held.claim) for held in hold(holdings, lease, 3))
    holdings.unsettled += [first, second, third]
    Job.objects.filter(pk=third.claim.id).update(locked_by=lease.worker + 1)
    missed = [second.claim, third.claim]

    assert holdings.let_go_completed([first, second, third], missed) == [first, third]
    assert holdings.unsettled == [second]
    assert (len(holdings), lease.board.free) == (1, SLOTS - 1)


def test_what_did_not_start_is_released_when_nobody_has_locked_it(holdings, lease):
    first, second = hold(holdings, lease, 2)
    holdings.note_unstarted([first, second])

    assert while_locked(second.claim.id, holdings.release) == [first.claim.id]
    assert (len(holdings), lease.board.free) == (1, SLOTS - 1)

    assert holdings.release() == [second.claim.id]
    assert holdings.release() == []
    assert (len(holdings), lease.board.free) == (0, SLOTS)
    assert set(Job.objects.values_list("status", "attempts")) == {("pending", 0)}


def test_only_what_is_not_held_is_an_orphan(holdings, lease):
    [held] = hold(holdings, lease, 1)
    orphan = make("running", locked_by=lease.worker)

    assert holdings.release_orphans() == 1
    assert (row(orphan)["status"], ids(Job.objects.running())) == ("pending", [held.claim.id])


def test_what_is_given_up_is_retried_and_counted_though_its_transaction_was_cut(holdings, lease):
    [held] = hold(holdings, lease, 1)
    rolled_back = make()
    cut = Held(
        claim_of(rolled_back, attempts=1, claims=1), lease.board.take(), None
    )  # as its thread had it

    over = holdings.give_up([held, cut], [cut], lambda _: RuntimeError("stop"), 0.0)

    assert {outcome.claim.id for outcome in over} == {held.claim.id, rolled_back.id}
    assert set(Job.objects.values_list("status", "attempts")) == {("pending", 1)}
    assert len(holdings) == 0
    assert lease.board.free == SLOTS - 1, "the slot of a thread stays its own"


def test_a_lost_claim_is_held_until_it_is_retaken_and_settled(holdings, lease):
    claim = claim_of(make(), attempts=1, claims=1)
    failed = execution.failed(claim, RuntimeError("lost"), "w")
    holdings.note_lost(Held(claim, lease.board.take(), None), failed)
    assert (len(holdings), holdings.waits, holdings.unsettled) == (1, True, [])

    holdings.retake()

    assert holdings.settle(holdings.unsettled) == [failed]
    assert (len(holdings), holdings.waits) == (0, False)
