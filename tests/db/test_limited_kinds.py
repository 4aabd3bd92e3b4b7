"""A worker with room for one sort of handlers only claims what has limits of that sort."""

from __future__ import annotations

import math

import pytest

from django_pgjobs import Limit, Rate, statements
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Done, settle
from tests.db.limited import WORKER, claimer, declare, taken
from tests.db.rows import AGO, execute, ids, make

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]

SORTS = [{"kinds": ["one"], "among": True}, {"kinds": ["other"], "among": False}]


@pytest.mark.parametrize("sort", SORTS, ids=["these", "all but those"])
def test_only_wanted_kinds_are_claimed_and_others_hold_up_no_other_key(sort):
    one, other = declare("one", concurrency=Limit(2)), declare("other", concurrency=Limit(2))
    other.enqueue_many({} for _ in range(3))
    wanted = [one.enqueue() for _ in range(3)]
    looks = claimer(**sort)

    assert ids(taken(by=looks)) == ids(wanted[:2])
    assert taken(by=looks) == []
    assert looks.seconds == math.inf  # it does not look again before something changes
    assert not Job.objects.filter(kind="other").exclude(claims=0).exists()


def test_in_a_key_none_that_is_not_wanted_is_passed_by():
    one = declare("one", concurrency=Limit(5)).using(concurrency_key="shared")
    other = declare("other", concurrency=Limit(5)).using(concurrency_key="shared")
    before = one.enqueue()
    other.enqueue()
    one.enqueue()

    assert ids(taken(by=claimer(**SORTS[0]))) == [before.id]
    assert taken(by=claimer(**SORTS[0])) == []


def test_in_a_limited_queue_those_without_a_key_are_passed_within_reach(settings):
    settings.PGJOBS = {"QUEUES": {"mail": {"concurrency": 3}}}
    for _ in range(statements.NEAR - 1):
        make(kind="other", queue="mail", run_at=AGO)
    wanted = [make(kind="one", queue="mail") for _ in range(5)]
    looks = claimer(**SORTS[0])

    first = taken(by=looks)
    assert ids(first) == [wanted[0].id]
    make(kind="other", queue="mail", run_at=AGO)
    assert taken(by=looks) == []
    assert looks.exhausted

    assert len(taken(by=claimer(kinds=["other"]))) == 2  # the limit is one for both
    assert taken(by=claimer(**SORTS[0])) == []
    assert not settle(execute, WORKER, [Done(first[0])]).stale
    assert ids(taken(by=claimer(**SORTS[0]))) == [wanted[1].id]


def test_a_rate_is_one_for_both_sorts():
    for kind in ("one", "other"):
        declare(kind, rate=Rate(1, per=60)).using(concurrency_key="shared").enqueue()

    assert [claim.kind for claim in taken(by=claimer(**SORTS[0]))] == ["one"]
    looks = claimer(kinds=["other"])
    assert taken(by=looks) == []
    assert 50 < looks.seconds <= 60
