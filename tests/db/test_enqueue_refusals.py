"""What is refused is refused before any SQL: the caller's transaction goes on."""

from __future__ import annotations

import datetime
import math

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction

from django_pgjobs import InvalidOption, InvalidPayload, UnknownKind, enqueue, get_job
from django_pgjobs.enqueueing import CHUNK
from django_pgjobs.models import Job
from tests.db.rows import ids

pytestmark = pytest.mark.django_db

add = get_job("add")
CYCLE: list[object] = []
CYCLE.append(CYCLE)

REFUSED = {
    "NUL in a value": (InvalidPayload, lambda: enqueue("add", a="x\x00")),
    "NUL deep inside": (InvalidPayload, lambda: enqueue("add", a=[{"b": ["\x00"]}])),
    "NUL in a key": (InvalidPayload, lambda: enqueue("add", a={"\x00": 1})),
    "a lone surrogate": (InvalidPayload, lambda: enqueue("add", a="\ud800")),
    "NaN": (InvalidPayload, lambda: enqueue("add", a=math.nan)),
    "infinity": (InvalidPayload, lambda: enqueue("add", a=[-math.inf])),
    "bytes": (InvalidPayload, lambda: enqueue("add", a=b"x")),
    "a set": (InvalidPayload, lambda: enqueue("add", a={1})),
    "a queryset": (InvalidPayload, lambda: enqueue("add", a=User.objects.all())),
    "an unsaved instance": (InvalidPayload, lambda: enqueue("add", a=User())),
    "a naive time": (InvalidPayload, lambda: enqueue("add", a=datetime.datetime(2030, 1, 1))),  # noqa: DTZ001
    "a cycle": (InvalidPayload, lambda: enqueue("add", a=CYCLE)),
    "more than the limit": (InvalidPayload, lambda: enqueue("add", a="x" * 100_001)),
    "a huge int": (InvalidPayload, lambda: enqueue("add", a=10**5000)),
    "a missing argument": (InvalidPayload, lambda: enqueue("add", b=1)),
    "an unknown argument": (InvalidPayload, lambda: enqueue("add", a=1, c=1)),
    "too many arguments": (InvalidPayload, lambda: add.enqueue(1, 2, 3)),
    "one of many": (InvalidPayload, lambda: add.enqueue_many([{"a": 1}, {"a": b"x"}])),
    "no mapping among many": (InvalidPayload, lambda: add.enqueue_many([{"a": 1}, 5])),
    "a mapping for many": (InvalidPayload, lambda: add.enqueue_many({"a": 1})),
    "an unknown kind": (UnknownKind, lambda: enqueue("os.system", command="true")),
    "an empty kind": (UnknownKind, lambda: enqueue("")),
    "a kind of 10,000 characters": (UnknownKind, lambda: enqueue("." * 10_000)),
    "NUL in a queue": (InvalidOption, lambda: add.using(queue="a\x00").enqueue(1)),
    "a priority out of range": (InvalidOption, lambda: add.using(priority=101).enqueue(1)),
    "a time out of range": (InvalidOption, lambda: add.using(delay=10**12).enqueue(1)),
}


@pytest.mark.parametrize(("error", "refused"), REFUSED.values(), ids=REFUSED)
def test_a_refused_enqueue_leaves_the_transaction_usable(error, refused, django_assert_num_queries):
    with transaction.atomic():
        User.objects.create(username="before")
        with pytest.raises(error):
            refused()
        enqueue("add", a=1)

    assert User.objects.filter(username="before").exists()
    assert Job.objects.get().payload == {"a": 1}


SENDS_A_SAVEPOINT = {"one of many", "no mapping among many", "a mapping for many"}


@pytest.mark.parametrize("name", sorted(REFUSED.keys() - SENDS_A_SAVEPOINT))
def test_a_refused_enqueue_sends_nothing(name, django_assert_num_queries):
    error, refused = REFUSED[name]

    with django_assert_num_queries(0), pytest.raises(error):
        refused()


def test_many_jobs_have_the_order_of_their_payloads():
    count = CHUNK + 500

    given = add.enqueue_many({"a": n} for n in range(count))

    assert given == sorted(given)
    assert ids(Job.objects.order_by("id")) == given
    assert [j.payload["a"] for j in Job.objects.order_by("id")] == list(range(count))


@pytest.mark.parametrize("payloads", [[], (), iter([])], ids=["list", "tuple", "iterator"])
def test_many_of_none_is_none(payloads):
    assert add.enqueue_many(payloads) == []
    assert not Job.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("place", [0, 1, CHUNK + 1])
@pytest.mark.parametrize("error", [InvalidPayload, ZeroDivisionError])
def test_many_jobs_exist_all_or_none(place, error):
    def payloads():
        for n in range(CHUNK + 10):
            if n == place and error is ZeroDivisionError:
                raise error
            yield {"a": b"x"} if n == place else {"a": n}

    with pytest.raises(error):
        add.enqueue_many(payloads())

    assert not Job.objects.exists()


def test_many_jobs_are_taken_from_a_generator_chunk_by_chunk():
    most = 0

    def payloads():
        nonlocal most
        for n in range(2 * CHUNK):
            most = max(most, n - Job.objects.count() if n % 1000 == 999 else 0)
            yield {"a": n}

    add.enqueue_many(payloads())

    assert most < CHUNK + 1000
    assert Job.objects.count() == 2 * CHUNK


def test_many_that_are_refused_leave_the_earlier_ones_of_the_transaction():
    with transaction.atomic():
        kept = add.enqueue_many([{"a": 1}, {"a": 2}])
        with pytest.raises(InvalidPayload):
            add.enqueue_many([{"a": 3}, {}])
        last = add.enqueue_many([{"a": 4}])

    assert ids(Job.objects.order_by("id")) == kept + last


def test_an_enqueue_that_the_database_refuses_takes_the_callers_rows_with_it():
    """Nothing is put off until after the commit, where it could fail alone."""

    def place_an_order():
        with transaction.atomic():
            User.objects.create(username="u")
            _forbid_enqueues()
            enqueue("add", a=1)

    with pytest.raises(DatabaseError, match="no enqueue today"):
        place_an_order()

    assert not User.objects.exists()
    assert not Job.objects.exists()


def _forbid_enqueues():
    with connection.cursor() as cursor:
        cursor.execute(
            "create function pg_temp.forbid() returns trigger language plpgsql as $$"
            "begin raise exception 'no enqueue today'; end $$;"
            "create trigger forbid before insert on django_pgjobs_job "
            "for each row execute function pg_temp.forbid()"
        )
