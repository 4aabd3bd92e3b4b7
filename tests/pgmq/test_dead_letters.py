"""Messages that nobody could handle: set aside, looked at, driven back."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.utils import timezone

from django_pgjobs.exceptions import InvalidOption, QueueMissing
from django_pgjobs.pgmq import DeadLetters, Queue


@pytest.fixture
def dead(db):
    Queue("emails_dead").create()
    return DeadLetters("emails_dead")


def bury(queue, dead, *bodies, reason="It bounced.", **options):
    queue.send_batch(bodies, **options)
    return [dead.bury(queue, message, reason) for message in queue.read(qty=len(bodies))]


def test_a_buried_message_is_a_dead_letter_with_its_reason(queue, dead):
    [dead_id] = bury(queue, dead, {"to": "ada"}, headers=[{"trace": "t1"}])

    [letter] = dead.peek()

    assert (letter.id, letter.queue, letter.reason) == (dead_id, "emails", "It bounced.")
    assert (letter.message, letter.headers, letter.read_ct) == ({"to": "ada"}, {"trace": "t1"}, 1)
    assert letter.died_at <= timezone.now()
    assert queue.metrics().length == 0


def test_peeking_reads_nothing_and_goes_on_from_the_last(queue, dead):
    bury(queue, dead, 1, 2, 3)

    first = dead.peek(2)
    rest = dead.peek(2, after=first[-1].id)

    assert [letter.message for letter in [*first, *rest]] == [1, 2, 3]
    assert [message.read_ct for message in dead.queue.read(qty=3)] == [1, 1, 1]


def test_a_message_that_somebody_else_has_read_since_is_not_buried(queue, dead):
    queue.send(1)
    [late] = queue.read(vt=0)
    [current] = queue.read()

    assert dead.bury(queue, late, "too late") is None
    assert dead.bury(queue, current, "in time") is not None
    assert [letter.reason for letter in dead.peek()] == ["in time"]


def test_a_message_that_is_gone_is_not_buried(queue, dead):
    queue.send(1)
    [message] = queue.read()
    queue.delete(message)

    assert dead.bury(queue, message, "gone") is None
    assert dead.peek() == []


def test_without_a_dead_letter_queue_a_message_stays_where_it_is(queue):
    queue.send(1)
    [message] = queue.read(vt=0)

    said = "The queue 'nowhere' must exist"
    with pytest.raises(QueueMissing, match=said), transaction.atomic():
        DeadLetters("nowhere").bury(queue, message, "no room")

    assert queue.metrics().length == 1


def test_all_are_driven_back_as_they_were(queue, dead):
    ids = bury(queue, dead, {"to": "ada"}, [2], headers=[{"trace": "t1"}, None])

    assert dead.redrive() == ids

    assert dead.peek() == []
    back = queue.read(qty=5)
    assert [(m.message, m.headers, m.read_ct) for m in back] == [
        ({"to": "ada"}, {"trace": "t1"}, 1),
        ([2], None, 1),
    ]


def test_some_are_driven_back_and_the_others_stay(queue, dead):
    first, second, third = bury(queue, dead, 1, 2, 3)

    assert dead.redrive(second) == [second]
    assert dead.redrive([third, 999]) == [third]

    assert [letter.id for letter in dead.peek()] == [first]
    assert [message.message for message in queue.read(qty=5)] == [2, 3]


def test_at_a_rate_they_are_seen_one_after_the_other(queue, dead):
    bury(queue, dead, 1, 2, 3)

    dead.redrive(rate=0.01)

    assert [message.message for message in queue.read(qty=5)] == [1]
    with connection.cursor() as cursor:
        cursor.execute(
            "select extract(epoch from max(vt) - min(enqueued_at)) from pgmq.q_emails "
            "where read_ct = 0"
        )
        assert 199 < cursor.fetchone()[0] < 260


def test_they_can_be_driven_into_another_queue(queue, dead):
    Queue("quarantine").create()
    bury(queue, dead, 1)

    assert dead.redrive(into="quarantine")

    assert [message.message for message in Queue("quarantine").read()] == [1]
    assert queue.read() == []


def test_a_queue_to_drive_them_into_must_exist(queue, dead):
    bury(queue, dead, 1)

    with pytest.raises(QueueMissing, match="The queue 'nowhere' must exist"), transaction.atomic():
        dead.redrive(into="nowhere")

    assert dead.queue.metrics().length == 1


def test_what_comes_from_no_queue_that_exists_stays(queue, dead):
    dead.queue.send("put here by hand")
    bury(queue, dead, "from a queue that goes")
    queue.drop()

    assert dead.redrive() == []

    assert [letter.queue for letter in dead.peek()] == [None, "emails"]


@pytest.mark.parametrize("headers", ["null", "[1]", '"text"', "5"])
def test_headers_of_other_programs_stand_in_nobody_s_way(queue, dead, headers):
    with connection.cursor() as cursor:
        cursor.execute("select pgmq.send('emails', '1'::jsonb, %s::jsonb)", [headers])
        cursor.execute("select pgmq.send('emails_dead', '2'::jsonb, %s::jsonb)", [headers])
    [message] = queue.read()
    dead.bury(queue, message, "odd")

    assert {letter.message for letter in dead.peek()} == {1, 2}
    assert len(dead.redrive(into="emails")) == 2


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), True, "fast"])
def test_a_rate_is_a_number_of_messages_a_second(dead, rate):
    with pytest.raises(InvalidOption, match="rate must be a number of messages"):
        dead.redrive(rate=rate)


def test_a_purge_deletes_them(queue, dead):
    bury(queue, dead, 1, 2)

    assert dead.purge() == 2
    assert dead.peek() == []


@pytest.mark.parametrize("name", ["%s", 'with"quote', "with space"])
def test_names_are_quoted(db, name):
    source, dead = Queue(name), DeadLetters(f"{name} dead")
    source.create()
    dead.queue.create()

    bury(source, dead, 1)

    assert [letter.queue for letter in dead.peek()] == [name]
    assert dead.redrive()
    assert [message.message for message in source.read()] == [1]


def test_every_method_has_an_async_twin(queue, dead):
    queue.send_batch([1, 2])
    async_to_sync(use_every_twin)(queue, dead)


async def use_every_twin(queue, dead):
    for message in await queue.aread(qty=2):
        assert await dead.abury(queue, message, "async")
    first, _ = await dead.apeek()
    assert await dead.aredrive(first.id) == [first.id]
    assert await dead.apurge() == 1
