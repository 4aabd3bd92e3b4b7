"""`assert_enqueued()` and `refute_enqueued()`: which jobs fit, and what a failed one says."""

from __future__ import annotations

import datetime
from decimal import Decimal
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.test import TestCase

from django_pgjobs import enqueue, get_job, job
from django_pgjobs.exceptions import InvalidOption, InvalidPayload, UnknownKind
from django_pgjobs.models import Job
from django_pgjobs.testing import assert_enqueued, drain, refute_enqueued
from tests.db.rows import FUTURE, make

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]

LATER = FUTURE + datetime.timedelta(hours=1)
EAST = datetime.timezone(datetime.timedelta(hours=3))


class AssertInATestCase(TestCase):
    def test_jobs_of_the_test_are_seen(self):
        queued = enqueue("add", a=1)

        assert assert_enqueued("add") == queued
        refute_enqueued("noop")


def refused(*args, **wanted):
    """What a failed assertion says, in lines."""
    with pytest.raises(AssertionError) as caught:
        assert_enqueued(*args, **wanted)
    return str(caught.value).splitlines()


def test_a_kind_is_a_name_an_alias_a_job_type_or_a_task():
    @job(aliases=["bill"])
    def invoice(): ...

    queued = invoice.enqueue()
    assert [assert_enqueued(kind) for kind in ("invoice", "bill", invoice)] == [queued] * 3

    older = make(kind="bill")
    assert assert_enqueued(invoice, count=2) == [queued, older]

    of_task = make(kind="shop.tasks.pack")
    assert assert_enqueued(SimpleNamespace(module_path="shop.tasks.pack")) == of_task
    with pytest.raises(TypeError, match="kind must be a name, a JobType or a task, got 7"):
        assert_enqueued(7)


def test_whatever_became_of_it_a_job_was_enqueued():
    queued = enqueue("noop")
    drain()

    assert assert_enqueued("noop") == queued
    assert assert_enqueued("noop").status == "done"


def test_of_several_the_last_one_is_returned_and_with_a_count_all():
    first, last = enqueue("add", a=1), enqueue("add", a=1)
    enqueue("add", a=2)

    assert assert_enqueued("add", payload={"a": 1}) == last
    assert assert_enqueued("add", payload={"a": 1}, count=2) == [first, last]
    assert assert_enqueued("add", payload={"a": 3}, count=0) == []
    said = refused("add", payload={"a": 1}, count=1)
    assert said[0] == "Of 'add', exactly 1 with payload {\"a\": 1} must be enqueued, got 2."
    assert len(said) == 4


NESTED = {"order": {"id": 7, "lines": [1, 2], "paid": True}, "note": None}


@pytest.mark.parametrize(
    ("part", "fits"),
    [
        ({}, True),
        ({"note": None}, True),
        ({"order": {}}, True),
        ({"order": {"id": 7}}, True),
        ({"order": {"lines": [1, 2]}}, True),
        ({"order": {"lines": [1]}}, False),
        ({"order": {"lines": [2, 1]}}, False),
        ({"order": {"id": 8}}, False),
        ({"order": {"id": "7"}}, False),
        ({"order": {"paid": 1}}, False),
        ({"order": {"paid": None}}, False),
        ({"order": {"none": None}}, False),
        ({"order": 7}, False),
        ({"copy": None}, False),
    ],
)
def test_a_payload_may_have_more_than_is_asked_for(part, fits):
    job(kind="keep")(lambda order, note, copy=None: None)
    enqueue("keep", **NESTED)

    if fits:
        assert_enqueued("keep", payload=part)
    else:
        refute_enqueued("keep", payload=part)


def test_values_are_compared_as_they_are_stored():
    job(kind="keep")(lambda a, user: None)
    user = User.objects.create(username="u")
    enqueue("keep", a=Decimal("9.90"), user=user)

    assert_enqueued("keep", payload={"a": Decimal("9.90"), "user": user})
    refute_enqueued("keep", payload={"a": 9.9})
    refute_enqueued("keep", payload={"a": "9.90"})


@pytest.mark.parametrize(
    ("stored", "same", "other"),
    [
        (Decimal("1.50"), Decimal("1.5"), Decimal("1.6")),
        ([Decimal("1.50")], [Decimal("1.5")], [Decimal(1)]),
        (Decimal(1), Decimal("1.0"), 1),
        (FUTURE, FUTURE.astimezone(EAST), FUTURE.replace(tzinfo=EAST)),
        ({"$type": "a", "n": 1}, {"n": 1}, {"n": 2}),
    ],
)
def test_what_is_written_otherwise_is_equal_if_its_value_is(stored, same, other):
    job(kind="keep")(lambda a: None)
    enqueue("keep", a=stored)

    assert_enqueued("keep", payload={"a": same})
    refute_enqueued("keep", payload={"a": other})


def test_values_beyond_json_are_shown_by_their_type():
    job(kind="keep")(lambda order, user: None)
    user, other = User.objects.create(username="u"), User.objects.create(username="v")
    enqueue("keep", order={"total": Decimal("1.50")}, user=user)

    said = refused("keep", payload={"order": {"total": "1.50"}, "user": other})[1]

    assert "payload['order']['total'] is decimal \"1.50\", not \"1.50\";" in said
    assert "payload['user']['pk']" not in said
    assert "; payload['user'] is model {" in said
    assert "}, not model {" in said


def test_values_that_would_be_shown_alike_are_said_to_differ():
    job(kind="keep")(lambda a: None)
    enqueue("keep", a="x" * 300)

    said = refused("keep", payload={"a": "x" * 301})[1]

    assert "payload['a'] is another one, though both are shown as \"xxx" in said


def test_options_are_compared():
    user, other = User.objects.create(username="u"), User.objects.create(username="v")
    at = FUTURE + datetime.timedelta(hours=1)
    get_job("noop").using(queue="mail", priority=5, run_at=at, subject=user).enqueue()

    for wanted in (
        {"queue": "mail"},
        {"priority": 5},
        {"run_at": at},
        {"run_at": (FUTURE, at)},
        {"subject": user},
        {"queue": "mail", "priority": 5, "run_at": at, "subject": user},
    ):
        assert_enqueued("noop", **wanted)
    for wanted in (
        {"queue": "default"},
        {"priority": 0},
        {"run_at": FUTURE},
        {"run_at": (FUTURE, FUTURE)},
        {"subject": other},
        {"queue": "mail", "priority": 4},
    ):
        refute_enqueued("noop", **wanted)


def test_a_delay_is_exact():
    get_job("noop").using(delay=3600).enqueue()

    assert_enqueued("noop", delay=3600)
    assert_enqueued("noop", delay=datetime.timedelta(hours=1))
    refute_enqueued("noop", delay=3600.001)
    refute_enqueued("noop", delay=0)
    enqueue("noop")
    assert_enqueued("noop", delay=0)


def test_a_failure_shows_the_nearest_first_and_in_what_each_differs():
    far = get_job("add").using(queue="mail").enqueue(a=1, b=3)
    near = enqueue("add", a=7)

    said = refused("add", payload={"a": 7, "b": 2}, queue="default", delay=0)

    assert said[0] == (
        'Of \'add\', one with payload {"a": 7, "b": 2}, queue "default", delay 0:00:00 must be enqueued, got none.'
    )
    assert said[1] == f"  Job {near.pk} (pending): payload['b'] is absent, not 2."
    assert said[2] == (
        f'  Job {far.pk} (pending): queue is "mail", not "default"; payload[\'a\'] is 1, not 7; '
        "payload['b'] is 3, not 2."
    )


def test_a_failure_without_one_of_the_kind_says_what_there_is():
    assert refused("add") == [
        "Of 'add', one must be enqueued, got none.",
        "  There is no job at all.",
    ]
    enqueue("noop")
    enqueue("noop")
    enqueue("anoop")
    assert refused("add")[1] == "  There are: noop (2), anoop (1)."


def test_a_failure_shows_few_of_many():
    get_job("add").enqueue_many({"a": n} for n in range(100))

    assert len(refused("add", payload={"a": 100})) == 6


def test_what_was_enqueued_and_must_not_is_shown():
    queued = enqueue("add", a=1)

    with pytest.raises(AssertionError) as caught:
        refute_enqueued("add", queue="default")

    assert str(caught.value).splitlines() == [
        "Of 'add', none with queue \"default\" must be enqueued, got 1.",
        f'  Job {queued.pk} (pending): payload is {{"a": 1}}.',
    ]


def test_secrets_are_masked():
    job(kind="keep")(lambda token, deep: None)
    enqueue("keep", token="s3cret", deep={"password": ["s3cret"]})  # noqa: S106 -- no real one

    said = [
        *refused("keep", payload={"token": "other-s3cret"}),
        *refused("keep", payload={"deep": {"password": ["more-s3cret"]}}),
        *refused("keep", count=2),
    ]

    assert "s3cret" not in "".join(said)
    alike = 'is another one, though both are shown as "••••••".'
    assert f"payload['token'] {alike}" in said[1]
    assert f"payload['deep']['password'][0] {alike}" in said[3]


def test_an_assertion_that_could_never_hold_is_refused():
    for ask in (assert_enqueued, refute_enqueued):
        with pytest.raises(UnknownKind, match="Did you mean 'noop'"):
            ask("nope")
        with pytest.raises(InvalidOption, match=r"payload must name arguments of .*got 'c'"):
            ask("add", payload={"c": 1})
        with pytest.raises(InvalidPayload, match=r"payload\.a must be"):
            ask("add", payload={"a": object()})
        with pytest.raises(InvalidOption, match=r"has no option 'queues'. Did you mean queue"):
            ask("add", queues="mail")
        with pytest.raises(InvalidOption, match="run_at must be an aware datetime"):
            ask("add", run_at=datetime.datetime(2030, 1, 1))  # noqa: DTZ001 -- the point


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"queue": ["mail"]}, r"queue must be .*, got \['mail'\]"),
        ({"queue": "a b"}, "queue must be .*, got 'a b'"),
        ({"priority": "0"}, "priority must be a whole number .*, got '0'"),
        ({"priority": 101}, "priority must be a whole number .*, got 101"),
        ({"delay": "0"}, "delay must be .*, got '0'"),
        ({"delay": float("nan")}, "delay must be .*, got nan"),
        ({"run_at": (LATER, FUTURE)}, "run_at must be one time, or .* Give the earlier one first"),
        ({"run_at": (FUTURE,)}, "run_at must be one time, or"),
        ({"run_at": ()}, "run_at must be one time, or"),
        ({"run_at": [FUTURE, LATER]}, "run_at must be a datetime"),
        ({"queue": None}, "queue must be .*, got None"),
        ({"delay": None}, "delay must be .*, got None. Leave it out"),
        ({"payload": None}, "payload must be .*, got None. Leave it out"),
        ({"payload": [1]}, "payload must be a dict, got"),
        ({"payload": "a"}, "payload must be a dict, got"),
        ({"payload": 7}, "payload must be a dict, got"),
    ],
)
def test_what_no_job_has_is_refused(wanted, said):
    for ask in (assert_enqueued, refute_enqueued):
        with pytest.raises((InvalidOption, InvalidPayload), match=said):
            ask("add", **wanted)


@pytest.mark.parametrize("count", ["x", -1, True, 1.0])
def test_a_count_that_could_never_be_is_refused(count):
    enqueue("noop")
    with pytest.raises(InvalidOption, match="count must be a whole number from 0 on, got"):
        assert_enqueued("noop", count=count)


def test_a_delay_that_is_over_is_none():
    get_job("noop").using(delay=-5).enqueue()

    assert_enqueued("noop", delay=-5)
    assert_enqueued("noop", delay=0)


def test_rows_of_a_kind_without_a_handler_are_seen():
    Job.objects.create(kind="of_another_program")

    assert_enqueued("of_another_program")


@pytest.mark.django_db(databases=["default", "other"])
def test_another_database_is_looked_at():
    get_job("noop").using(database="other").enqueue()

    assert_enqueued("noop", database="other")
    refute_enqueued("noop")
