"""What a handler returns is stored, or flagged; the job is done either way."""

from __future__ import annotations

import pytest

from django_pgjobs import job
from django_pgjobs.testing import drain

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]


def attempt(handler):
    """Run a job of this handler and return it."""
    tried = job(kind="probe")(handler).enqueue()
    assert drain() == 1
    tried.refresh_from_db()
    return tried


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "finite"),
        ([1, {"a": float("inf")}], "result[1].a"),
        ("x" * 50_000_000, "bytes"),
        (object(), "object"),
        ({1: 2}, "text"),
        (b"x", "b'x'"),
    ],
    ids=["NaN", "infinity inside", "50 MB", "an object", "a key that is no text", "bytes"],
)
def test_a_result_that_cannot_be_stored_is_flagged_and_the_job_is_done(value, reason):
    calls = []

    def handler():
        calls.append(1)
        return value

    done = attempt(handler)

    assert done.status == "done"
    assert done.result["$type"] == "unserializable"
    assert reason in done.result["value"]["reason"]
    assert len(str(done.result)) < 5_000
    assert (calls, done.attempts) == ([1], 1)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("a\x00b", "a␀b"),
        ({"a\x00": ["\x00"]}, {"a␀": ["␀"]}),
        ("\ud800", "\\ud800"),
        ((1, 2), [1, 2]),
    ],
    ids=["NUL", "NUL inside", "surrogate", "tuple"],
)
def test_what_postgresql_cannot_store_is_replaced_visibly_in_a_result(value, stored):
    done = attempt(lambda: value)

    assert (done.status, done.result) == ("done", stored)


class Unshowable:
    def __repr__(self):
        raise SystemExit

    __str__ = __repr__


def as_result():
    return Unshowable()


def test_a_result_that_cannot_be_shown_is_flagged_too():
    done = attempt(as_result)

    assert done.status == "done"
    assert done.result["$type"] == "unserializable"


@pytest.mark.parametrize("value", [0, "", [], {}, False, 2**53 + 1, 1.5, "ä日😀"], ids=repr)
def test_a_result_is_what_the_handler_returned(value):
    done = attempt(lambda: value)

    assert done.result == value
    assert type(done.result) is type(value)


def test_no_result_is_none():
    assert attempt(lambda: None).result is None
