"""A payload is bound to the handler's arguments when it is enqueued."""

from __future__ import annotations

import pytest

from django_pgjobs import InvalidOption, InvalidPayload
from django_pgjobs.signatures import Signature


def plain(a, b=2): ...


def keywords(*, a, b=2): ...


def extra(a, **rest): ...


def everything(**options): ...


def nothing(): ...


@pytest.mark.parametrize(
    ("handler", "args", "kwargs", "payload"),
    [
        (plain, (1,), {}, {"a": 1}),
        (plain, (1, 3), {}, {"a": 1, "b": 3}),
        (plain, (1,), {"b": 3}, {"a": 1, "b": 3}),
        (plain, (), {"a": 1}, {"a": 1}),
        (plain, (), {"b": 3, "a": 1}, {"a": 1, "b": 3}),
        (plain, (None,), {}, {"a": None}),
        (keywords, (), {"a": 1}, {"a": 1}),
        (extra, (1,), {"c": 3}, {"a": 1, "c": 3}),
        (extra, (1,), {"rest": 3}, {"a": 1, "rest": 3}),
        (extra, (), {"a": 1, "c": 3}, {"a": 1, "c": 3}),
        (everything, (), {"options": 1, "x": 2}, {"options": 1, "x": 2}),
        (everything, (), {}, {}),
        (nothing, (), {}, {}),
    ],
)
def test_arguments_are_bound_to_their_names_and_defaults_are_left_out(
    handler, args, kwargs, payload
):
    assert Signature(handler).bind("k", args, kwargs) == payload


@pytest.mark.parametrize(
    ("handler", "args", "kwargs", "fault"),
    [
        (plain, (), {}, "missing 'a'"),
        (plain, (), {"b": 1}, "missing 'a'"),
        (plain, (), {"a": 1, "c": 1, "d": 1}, "unknown 'c', 'd'"),
        (plain, (), {"a": 1, 5: 1}, "unknown 5"),
        (plain, (1, 2, 3), {}, "too many positional arguments"),
        (plain, (1,), {"a": 1}, "multiple values for argument 'a'"),
        (plain, (1,), {"c": 1}, "unexpected keyword argument 'c'"),
        (keywords, (1,), {}, "too many positional arguments"),
        (keywords, (), {"b": 1}, "missing 'a'"),
        (extra, (), {"c": 1}, "missing 'a'"),
        (nothing, (1,), {}, "too many positional arguments"),
        (nothing, (), {"x": 1}, "unknown 'x'"),
        (plain, (), None, "NoneType, which"),
        (plain, (), [("a", 1)], "list, which"),
        (plain, (), "a", "str, which"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_signature(handler, args, kwargs, fault):
    with pytest.raises(InvalidPayload) as refusal:
        Signature(handler).bind("shop.kind", args, kwargs)

    message = str(refusal.value)
    assert message.startswith("The payload of 'shop.kind' must fit shop.kind(")
    assert fault in message


def test_a_callers_mapping_is_copied():
    given = {"a": 1}

    bound = Signature(plain).bind("k", (), given)
    given["b"] = 2

    assert bound == {"a": 1}


def positional_only(a, /): ...


def starred(*args): ...


@pytest.mark.parametrize("handler", [positional_only, starred])
def test_a_handler_whose_arguments_have_no_names_is_refused(handler):
    with pytest.raises(InvalidOption, match=handler.__name__ + r"\(\) must take all its arguments"):
        Signature(handler)
