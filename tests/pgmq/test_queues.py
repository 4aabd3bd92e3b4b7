"""Queues of pgmq on Django's own connection."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.utils import timezone

from django_pgjobs.exceptions import InvalidOption, InvalidPayload, PgmqMissing, QueueMissing
from django_pgjobs.pgmq import DeadLetters, Message, Queue, list_queues, metrics_all

HOUR = datetime.timedelta(hours=1)


def bodies(messages):
    return [message.message for message in messages]


def rows(sql, *params):
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall()


# ------------------------------------------------------------------------------ sending and reading


def test_what_is_sent_is_read_with_what_pgmq_knows_of_it(queue):
    sent = queue.send({"to": "ada"}, headers={"trace": "t1"})

    [message] = queue.read(vt=30)

    assert isinstance(message, Message)
    assert (message.id, message.message, message.headers) == (sent, {"to": "ada"}, {"trace": "t1"})
    assert message.read_ct == 1
    assert message.enqueued_at <= timezone.now() < message.vt


@pytest.mark.parametrize("body", [None, True, 5, 1.5, "text", [], [1, {"a": None}], {}])
def test_any_json_is_a_message(queue, body):
    queue.send(body)

    assert bodies(queue.pop()) == [body]


def test_messages_have_the_types_that_payloads_have(queue):
    body = {"price": Decimal("1.50"), "on": datetime.date(2026, 1, 2)}

    queue.send(body)

    assert bodies(queue.read()) == [body]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"a": [float("nan")]}, r"message\.a\[0\] must be a finite number"),
        ("a\x00b", "message must be text without NUL"),
        (b"bytes", "message must be a JSON value"),
        ({1: 2}, "a key of message must be text"),
        ("x" * 200_000, "message must be at most 100,000 bytes"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_any_sql(
    queue, body, said, django_assert_num_queries
):
    with django_assert_num_queries(0), pytest.raises(InvalidPayload, match=said):
        queue.send(body)
    with django_assert_num_queries(0), pytest.raises(InvalidPayload, match=said):
        queue.send_batch([1, body])
    with django_assert_num_queries(0), pytest.raises(InvalidPayload, match="headers"):
        queue.send(1, headers={"a": body})


def test_a_message_of_another_program_arrives_as_the_json_that_it_is(queue):
    foreign = {"$type": "Shop.Order, Shop", "id": 7}
    rows('select pgmq.send(\'emails\', \'{"$type": "Shop.Order, Shop", "id": 7}\'::jsonb)')
    rows("select pgmq.send('emails', null)")
    rows("select pgmq.send('emails', ('1' || repeat('0', 5000))::jsonb)")
    rows("select pgmq.send('emails', (repeat('[', 3000) || repeat(']', 3000))::jsonb)")
    queue.send("ours")

    odd, nothing, number, deep, ours = bodies(queue.read(qty=10))

    assert (odd, nothing, ours) == (foreign, None, "ours")
    assert number in ("1" + "0" * 5000, 10**5000)
    assert deep


TIMES = ["infinity", "-infinity", "20000-01-01", "0044-03-15 BC"]


@pytest.mark.parametrize("time", TIMES)
def test_a_time_that_python_cannot_have_takes_no_message_away(queue, time):
    ids = queue.send_batch(range(4))
    sql = "update pgmq.q_emails set enqueued_at = %s where msg_id = %s returning 1"
    assert rows(sql, time, ids[0])

    assert [message.id for message in queue.read(qty=2)] == ids[:2]
    assert [message.id for message in queue.set_vt(ids[:2], 0)] == ids[:2]
    assert [letter.id for letter in DeadLetters("emails").peek()] == ids
    assert [message.id for message in queue.pop(qty=4)] == ids
    assert metrics_all()


def test_a_send_in_a_transaction_that_is_rolled_back_leaves_nothing(queue):
    with transaction.atomic():
        queue.send(1)
        queue.send_batch([2, 3])
        transaction.set_rollback(True)

    assert queue.read(qty=10) == []


def test_a_read_that_is_rolled_back_was_none(queue):
    queue.send(1)

    with transaction.atomic():
        assert queue.read(vt=3600)
        transaction.set_rollback(True)

    assert [message.read_ct for message in queue.read()] == [1]


def test_a_batch_comes_in_its_order_with_headers_of_each(queue):
    ids = queue.send_batch(["a", "b", "c"], headers=[{"n": 1}, None, {"n": 3}])

    read = queue.read(qty=10)

    assert [message.id for message in read] == ids
    assert [(m.message, m.headers) for m in read] == [("a", {"n": 1}), ("b", None), ("c", {"n": 3})]


def test_a_batch_of_nothing_is_nothing_and_one_with_other_headers_is_refused(queue):
    assert queue.send_batch([]) == []
    with pytest.raises(InvalidOption, match="as many as the messages, 2, got 1"):
        queue.send_batch([1, 2], headers=[None])


def test_a_plain_queue_leaves_json_as_it_is(queue, django_assert_num_queries):
    group = Group.objects.create(name="staff")
    queue.send({"group": group}, headers={"group": group})
    plain = Queue("emails", plain=True)
    stored = {"label": "auth.Group", "pk": group.pk, "database": "default"}
    named = {"group": {"$type": "model", "value": stored}}

    with django_assert_num_queries(1):
        [message] = plain.read(vt=0)
    assert (message.message, message.headers) == (named, named)
    assert queue.read(vt=0)[0].message == {"group": group}
    with django_assert_num_queries(1):
        [letter] = DeadLetters("emails", plain=True).peek()
    assert (letter.message, letter.headers) == (named, named)
    assert plain == queue, "it is the same queue"


@pytest.mark.parametrize("one", [{"a": 1, "b": 2}, "abc", b"abc", bytearray(b"abc"), 5, None])
def test_one_message_is_no_batch(queue, django_assert_num_queries, one):
    with django_assert_num_queries(0), pytest.raises(InvalidOption, match=r"send\(\) sends one\."):
        queue.send_batch(one)


@pytest.mark.parametrize("delay", [3600, 3600.5, HOUR, "at"])
def test_a_delayed_message_is_seen_later(queue, delay):
    at = timezone.now() + HOUR
    queue.send("later", delay=at if delay == "at" else delay)
    queue.send_batch(["later"], delay=at if delay == "at" else delay)

    assert queue.read() == []
    assert [
        round((vt - at).total_seconds() / 60) for (vt,) in rows("select vt from pgmq.q_emails")
    ] == [0, 0]


@pytest.mark.parametrize(
    "delay",
    [-1, float("nan"), "soon", True, datetime.datetime(2026, 1, 1)],  # noqa: DTZ001
)
def test_what_is_no_delay_is_refused(queue, delay, django_assert_num_queries):
    for act in (lambda: queue.send(1, delay=delay), lambda: queue.set_vt(1, delay)):
        with (
            django_assert_num_queries(0),
            pytest.raises(InvalidOption, match=r"(delay|vt) must be"),
        ):
            act()


# ------------------------------------------------------------------------------ visibility, and ends


def test_a_message_that_was_read_is_seen_again_when_its_time_is_over(queue):
    queue.send(1)
    [message] = queue.read(vt=3600)
    assert queue.read() == []

    [given_back] = queue.set_vt(message, 0)

    assert given_back.id == message.id
    assert [again.read_ct for again in queue.read()] == [2]


def test_a_time_of_less_than_a_second_is_a_second_for_pgmq(queue):
    queue.send(1)

    [message] = queue.read(vt=datetime.timedelta(milliseconds=300))

    assert message.vt > timezone.now()


def test_reading_takes_no_more_than_asked_and_the_oldest_first(queue):
    queue.send_batch([1, 2, 3])

    assert bodies(queue.read(qty=2)) == [1, 2]
    assert bodies(queue.read(qty=2)) == [3]


@pytest.mark.parametrize("qty", [0, -1, 1.5, True, 2**31])
def test_a_quantity_is_a_number_of_messages(queue, qty):
    for act in (queue.read, queue.pop):
        with pytest.raises(InvalidOption, match="qty must be a whole number from 1 to 2147483647"):
            act(qty=qty)


def test_a_read_with_poll_returns_what_is_there_and_ends_when_nothing_comes(queue):
    assert queue.read_with_poll(wait=0, interval=0.01) == []
    queue.send(1)
    assert bodies(queue.read_with_poll(wait=60)) == [1]


def test_a_popped_message_is_gone(queue):
    queue.send_batch([1, 2])

    assert bodies(queue.pop(5)) == [1, 2]

    assert rows("select count(*) from pgmq.q_emails") == [(0,)]
    assert rows("select count(*) from pgmq.a_emails") == [(0,)]


@pytest.mark.parametrize("act", ["archive", "delete"])
def test_one_message_or_many_are_taken_out_of_the_queue(queue, act):
    ids = queue.send_batch([1, 2, 3, 4])
    first, *_ = queue.read(vt=0, qty=1)

    assert getattr(queue, act)(first) == ids[:1]
    assert getattr(queue, act)(ids[:3]) == ids[1:3]
    assert getattr(queue, act)([]) == []

    assert bodies(queue.read(qty=10)) == [4]
    kept = rows("select msg_id from pgmq.a_emails order by 1")
    assert [one for (one,) in kept] == (ids[:3] if act == "archive" else [])


# ------------------------------------------------------------------------------------ queues as such


NO_IDS = ["12", ["3"], b"12", 7.7, [2.0], True, [None], None, 2**63, [[1]]]


@pytest.mark.parametrize("given", NO_IDS, ids=repr)
def test_what_is_no_id_is_refused_before_any_sql_and_no_other_message_is_taken(
    queue, given, django_assert_num_queries
):
    ids = queue.send_batch(range(15))
    acts = (queue.archive, queue.delete, lambda one: queue.set_vt(one, 30))

    with django_assert_num_queries(0):
        for act in (*acts, DeadLetters("emails").redrive if given is not None else queue.delete):
            with pytest.raises(InvalidOption, match="must be a Message or its id, a whole number"):
                act(given)

    assert [message.id for message in queue.read(qty=20)] == ids


def test_a_purge_empties_the_queue_and_leaves_the_archive(queue):
    queue.archive(queue.send_batch([1]))
    queue.send_batch([2, 3])

    assert queue.purge() == 2

    assert rows("select count(*) from pgmq.a_emails") == [(1,)]


def test_a_queue_is_created_once_and_dropped_once(queue):
    queue.create()
    assert [(q.queue_name, q.is_unlogged) for q in list_queues()] == [("emails", False)]

    assert queue.drop() is True
    assert queue.drop() is False
    assert list_queues() == []


def test_an_unlogged_queue_is_one(db):
    Queue("fast").create(unlogged=True)

    assert [q.is_unlogged for q in list_queues()] == [True]
    assert rows("select relpersistence from pg_class where relname = 'q_fast'") == [("u",)]


def test_metrics_count_what_is_there(queue):
    Queue("other").create()
    queue.send_batch([1, 2], delay=0)
    queue.send(3, delay=HOUR)

    figures = queue.metrics()

    assert (figures.queue, figures.length, figures.total) == ("emails", 3, 3)
    assert figures.oldest_age == 0
    assert [(m.queue, m.length, m.oldest_age) for m in metrics_all()] == [
        ("emails", 3, 0),
        ("other", 0, None),
    ]


def test_pgmq_notifies_of_inserts_where_it_is_asked_to(queue):
    def throttles():
        return rows("select queue_name, throttle_interval_ms from pgmq.notify_insert_throttle")

    queue.enable_notify()
    assert throttles() == [("emails", 250)]
    queue.enable_notify(throttle=datetime.timedelta(seconds=2))
    assert throttles() == [("emails", 2000)]

    queue.disable_notify()
    assert throttles() == []


# ------------------------------------------------------------------------------ names, and what is missing


@pytest.mark.parametrize(
    "name",
    ["with space", 'with"quote', "a.b", "%s", "é" * 23, "x" * 47, "select", "q_", "-"],
)
def test_a_name_that_pgmq_keeps_as_it_is_works_for_everything(db, name):
    queue = Queue(name)
    queue.create()
    queue.enable_notify()
    ids = queue.send_batch([1, 2])

    assert bodies(queue.read(vt=0)) == [1]
    assert queue.archive(ids[0]) == ids[:1]
    assert queue.metrics().length == 1
    assert queue.purge() == 1
    queue.disable_notify()
    assert [q.queue_name for q in list_queues()] == [name]
    assert queue.drop() is True
    assert rows(
        "select count(*) from pg_tables where schemaname = 'pgmq' and tablename ~ '^[qa]_'"
    ) == [(0,)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "not empty"),
        (None, "not empty"),
        ("a\x00b", "not empty"),
        ("x" * 48, "at most 47 bytes in UTF-8, got 48 bytes"),
        ("é" * 24, "got 48 bytes"),
        ("a$b", "pgmq refuses"),
        ("a;b", "pgmq refuses"),
        ("a--b", "pgmq refuses"),
        ("a'b", "pgmq refuses"),
        ("Emails", "Write 'emails'"),
    ],
)
def test_a_name_that_pgmq_would_change_or_refuse_is_refused(name, said):
    with pytest.raises(InvalidOption, match=f"The name of a queue must .*{said}"):
        Queue(name)


ACTS = {
    "send": lambda q: q.send(1),
    "send_batch": lambda q: q.send_batch([1]),
    "read": lambda q: q.read(),
    "read_with_poll": lambda q: q.read_with_poll(),
    "pop": lambda q: q.pop(),
    "set_vt": lambda q: q.set_vt(1, 0),
    "archive": lambda q: q.archive(1),
    "delete": lambda q: q.delete(1),
    "purge": lambda q: q.purge(),
    "metrics": lambda q: q.metrics(),
    "enable_notify": lambda q: q.enable_notify(),
}


@pytest.mark.parametrize("act", ACTS)
def test_of_a_queue_that_does_not_exist_it_is_said_how_to_create_it(db, act):
    with pytest.raises(QueueMissing, match=r"Create it: Queue\('none'\)"), transaction.atomic():
        ACTS[act](Queue("none"))


WITHOUT_A_QUEUE = {
    "create": lambda q: q.create(),
    "drop": lambda q: q.drop(),
    "disable_notify": lambda q: q.disable_notify(),
    "list_queues": lambda _: list_queues(),
    "metrics_all": lambda _: metrics_all(),
}


@pytest.mark.parametrize("act", [*ACTS, *WITHOUT_A_QUEUE])
def test_without_pgmq_it_is_said_what_to_install(db, act):
    with connection.cursor() as cursor:
        cursor.execute("drop schema pgmq cascade")

    said = r"Add 'django_pgjobs\.pgmq' to INSTALLED_APPS"
    with pytest.raises(PgmqMissing, match=said), transaction.atomic():
        (ACTS | WITHOUT_A_QUEUE)[act](Queue("emails"))


@pytest.mark.django_db(databases=["default", "other"])
def test_a_queue_is_on_the_database_that_it_is_told():
    Queue("there", using="other").create()

    assert [q.queue_name for q in list_queues("other")] == ["there"]
    assert list_queues() == []


@pytest.mark.django_db(databases=["default", "other"])
def test_without_being_told_it_is_where_the_routers_say(settings):
    class Router:
        def db_for_write(self, model, **_hints):
            return "other" if model._meta.app_label == "django_pgjobs_pgmq" else None

        db_for_read = db_for_write

    settings.DATABASE_ROUTERS = [Router()]
    Queue("there").create()

    assert Queue("there").alias == "other"
    assert [q.queue_name for q in list_queues("other")] == ["there"]


# ----------------------------------------------------------------------------------------------- async


def test_every_method_has_an_async_twin(db):
    async_to_sync(use_every_twin)(Queue("emails"))


async def use_every_twin(queue):
    await queue.acreate()
    await queue.aenable_notify()
    await queue.adisable_notify()
    await queue.asend(1, headers={"a": 1})
    ids = await queue.asend_batch([2, 3])

    [first] = await queue.aread(vt=0)
    assert first.message == 1
    assert await queue.aset_vt(first, 3600)
    assert bodies(await queue.aread_with_poll(vt=0)) == [2]
    assert await queue.aarchive(ids[0]) == ids[:1]
    assert bodies(await queue.apop()) == [3]
    assert await queue.adelete(first) == [first.id]
    assert (await queue.ametrics()).length == 0
    assert await queue.apurge() == 0
    assert await queue.adrop()


def test_no_twin_is_forgotten():
    methods = {n for n, v in vars(Queue).items() if callable(v) and not n.startswith("_")}

    sync = {name for name in methods if f"a{name}" in methods}
    assert methods == sync | {f"a{name}" for name in sync}
    assert Queue.asend.__doc__ == "`send()` for async code."
