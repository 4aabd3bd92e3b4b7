"""The values of limits, and the keys of jobs: nothing here needs a database."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_pgjobs import InvalidOption, InvalidPayload, Limit, Rate, conf, get_job, job
from django_pgjobs.limits import KEY_LENGTH, Limits, check_key

pytestmark = pytest.mark.usefixtures("kinds")


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "3", None, 100_001])
def test_a_limit_must_be_a_whole_number_above_0(n):
    for make in (lambda: Limit(n), lambda: Rate(n, per=1)):
        with pytest.raises(InvalidOption, match=r"must be a whole number from 1 to 100000, got"):
            make()


@pytest.mark.parametrize("per", [0, -1, float("nan"), float("inf"), True, "1", None, 1e9])
def test_a_period_must_be_a_time(per):
    with pytest.raises(InvalidOption, match=r"Rate\(per\) must be a timedelta or a number"):
        Rate(1, per=per)


@pytest.mark.parametrize("burst", [-1, 1.5, True, "1"])
def test_a_burst_must_be_a_whole_number(burst):
    with pytest.raises(InvalidOption, match=r"Rate\(burst\) must be a whole number from 0"):
        Rate(1, per=1, burst=burst)


@pytest.mark.parametrize("key", ["", 1, ["a"]])
def test_a_key_must_be_a_name_or_a_callable(key):
    for make in (lambda: Limit(1, key=key), lambda: Rate(1, per=1, key=key)):
        with pytest.raises(InvalidOption, match="must be the name of an argument or a callable"):
            make()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 3}, r"concurrency must be a Limit, got 3. Write Limit\(3\)."),
        ({"rate": "10/m"}, r"rate must be a Rate, got '10/m'. Write Rate\(10, per=60\)."),
        ({"ordered": 1}, "ordered must be True or False, got 1"),
        ({"ordered": True, "concurrency": Limit(2)}, r"concurrency must be Limit\(1\) where"),
        (
            {"concurrency": Limit(1, key="a"), "rate": Rate(1, per=1)},
            "rate must have the key of concurrency, 'a', got None",
        ),
        ({"concurrency": Limit(1, key="x")}, r"key must name arguments of \(.*\), got 'x'"),
        ({"rate": Rate(1, per=1, key="x")}, r"key must name arguments of \(.*\), got 'x'"),
    ],
)
def test_a_kind_refuses_limits_that_cannot_be_kept(options, message):
    with pytest.raises(InvalidOption, match=message):

        @job(**options)
        def call(a, b=1):
            """Do nothing."""


DAY = datetime.date(2030, 1, 2)
UUID = uuid.UUID(int=5)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("x", "call:x"),
        (1, "call:1"),
        (True, "call:True"),  # as Python writes it: 1, True and 1.0 are three keys
        (1.0, "call:1.0"),
        (decimal.Decimal("1.10"), "call:1.10"),
        (UUID, f"call:{UUID}"),
        (DAY, "call:2030-01-02"),
        (type("Saved", (), {"pk": 7})(), "call:7"),
        (enum.Enum("Plan", {"FREE": "free"}, type=str).FREE, "call:free"),
        (enum.Enum("Level", {"HIGH": 3}, type=int).HIGH, "call:3"),
        (enum.IntEnum("Level", "LOW").LOW, "call:1"),
        ("", "call:"),
        (None, None),
    ],
)
def test_a_key_is_the_kind_and_the_value(key, expected):
    by_name, by_call = Limits(Limit(1, key="a")), Limits(Limit(1, key=lambda payload: payload["a"]))
    for limits in (by_name, by_call):
        assert limits.key_of("call", {"a": key}, {}) == expected
        assert limits.key_of("call", {}, {"a": key}) == expected  # the argument's default


def test_without_a_key_it_is_the_kind():
    for limits in (Limits(Limit(1)), Limits(rate=Rate(1, per=1)), Limits(ordered=True)):
        assert limits.key_of("call", {"a": 1}, {}) == "call"


@pytest.mark.parametrize("value", [[1], {"a": 1}, object(), b"x"])
def test_a_value_that_can_be_no_key_is_refused_before_any_sql(value):
    @job(concurrency=Limit(1, key=lambda payload: value))
    def call(a):
        """Do nothing."""

    with pytest.raises(InvalidPayload, match="The key of a job of the kind 'call' must be a text"):
        call.enqueue(a=1)


@pytest.mark.parametrize("key", ["", 1, "a\0b", "\ud800", b"x"])
def test_a_key_of_using_must_be_a_text_that_the_row_can_hold(key):
    with pytest.raises(InvalidOption, match="concurrency_key must be a text"):
        get_job("noop").using(concurrency_key=key)


def test_a_long_key_is_stored_as_its_hash():
    long = "x" * (KEY_LENGTH + 1)
    assert check_key(long[1:]) == long[1:]
    assert len(check_key(long)) == 64
    assert check_key(long) != check_key(long + "y")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, r"\['concurrency'\] must be a whole number from 1 to 100000, got 0"),
        ({"concurrency": True}, "must be a whole number"),
        ({"rate": 5}, r"\['rate'\] must be a Rate without a key, got 5"),
        ({"rate": Rate(1, per=1, key="a")}, "must be a Rate without a key"),
        (
            {"concurrency": 1, "claim": "transaction"},
            r"must not claim by transaction and have a limit.*Claim the queue by lease.*E007",
        ),
    ],
)
def test_a_queue_refuses_limits_that_cannot_be_kept(settings, options, message):
    settings.PGJOBS = {"QUEUES": {"mail": options}}
    with pytest.raises(ImproperlyConfigured, match=message):
        conf.get()
