"""The switch of a queue, for projects' own code."""

from __future__ import annotations

import pytest

from django_pgjobs import InvalidOption, pause, resume
from django_pgjobs.claims import Claimer
from django_pgjobs.models import Queue
from tests.db.rows import claimed, execute, make

pytestmark = pytest.mark.django_db


def test_a_paused_queue_is_not_claimed_from_until_it_is_resumed():
    job = make(queue="mail")
    assert pause("mail", by="ada")
    assert claimed() == []
    assert resume("mail")
    assert [claim.id for claim in claimed()] == [job.pk]


@pytest.mark.parametrize("queues", [None, ["mail"]], ids=["all queues", "named queues"])
def test_a_pause_holds_for_a_worker_that_is_at_work_on_the_queue(queues):
    make(queue="mail"), make(queue="mail"), make(queue="mail")
    claimer = Claimer("default", 7, queues)
    assert claimer.claim(execute, 1)
    assert claimer.seconds_to_full > 0, "it knows where to go on, and looks at nothing else"
    pause("mail")
    assert claimer.claim(execute, 1) == []
    resume("mail")
    assert len(claimer.claim(execute, 5)) == 2


def test_a_switch_that_stands_as_it_is_asked_for_stays_as_it_is():
    assert not resume("mail")
    pause("mail", by="ada")
    assert not pause("mail", by="bob")
    assert Queue.objects.get().paused_by == "ada"


def test_a_pause_needs_no_name_and_takes_a_long_one():
    pause("mail")
    pause("docs", by="a" * 300)
    assert dict(Queue.objects.values_list("name", "paused_by")) == {"mail": "", "docs": "a" * 200}


@pytest.mark.parametrize("name", ["", "a\x00", "é" * 40, None])
def test_what_is_no_name_of_a_queue_cannot_be_paused(name):
    with pytest.raises(InvalidOption, match="queue must be"):
        pause(name)
    assert not Queue.objects.exists()
