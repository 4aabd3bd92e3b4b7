from __future__ import annotations

import datetime as dt
import enum
import io
import json
import math
import sys
import threading
import time
import tracemalloc
from collections import OrderedDict, UserDict, deque, namedtuple
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group
from django.contrib.contenttypes.models import ContentType
from django.db.models import IntegerChoices, TextChoices
from django.test import override_settings
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy, override
from hypothesis import given, settings
from hypothesis import strategies as st

from django_pgjobs.exceptions import InvalidPayload
from django_pgjobs.payloads import MAX_DEPTH, decode, encode, result_text

LIMIT = 100_000
relaxed = settings(deadline=None)  # a busy machine is no failure
VIENNA = ZoneInfo("Europe/Vienna")


def encoded(payload):
    return encode(payload, max_bytes=LIMIT)


def round_trip(value):
    return decode(encoded({"value": value}))["value"]


def refusal(value):
    """The message with which a value is refused inside a payload."""
    with pytest.raises(InvalidPayload) as caught:
        encoded({"value": value})
    assert caught.value.__cause__ is None
    return str(caught.value)


def typed(value):
    """A value with the types of all its parts, for comparison."""
    if isinstance(value, dict):
        return dict, {key: typed(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return list, [typed(part) for part in value]
    if isinstance(value, dt.datetime | dt.time):
        return type(value), value.isoformat()  # the zone's name is not kept
    if isinstance(value, Decimal):
        return Decimal, value.as_tuple()
    if isinstance(value, float) and abs(value) >= 1e16:
        return int, value  # jsonb keeps no exponent
    return type(value), value


text = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
zones = st.one_of(
    st.just(dt.UTC),
    st.timezones(),
    st.integers(-23 * 3_600, 23 * 3_600).map(lambda s: dt.timezone(dt.timedelta(seconds=s))),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    text,
    st.datetimes(timezones=zones),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.uuids(),
)
keys = st.one_of(text, st.sampled_from(["$type", "value"]))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(keys, inner)
    ),
    max_leaves=10,
)


@relaxed
@given(st.dictionaries(keys, values))
def test_every_payload_comes_back_equal_and_of_equal_types(payload):
    assert typed(decode(encode(payload, max_bytes=10**7))) == typed(payload)


@relaxed
@given(st.dictionaries(keys, values), st.integers(0, 2_000))
def test_the_limit_is_exactly_the_bytes_of_the_text(payload, limit):
    size = len(encode(payload, max_bytes=10**7).encode())
    if size <= limit:
        encode(payload, max_bytes=limit)
    else:
        with pytest.raises(InvalidPayload, match=f"at most {limit:,} bytes of JSON, got "):
            encode(payload, max_bytes=limit)


@pytest.mark.parametrize(
    "value",
    [
        "emoji 😀, right to left שלום, combining e\u0301, composed é",
        2**53 + 1,
        2**63 + 1,
        -(2**63) - 1,
        10**40,
        1970670598291982290,
        pytest.param(10**4_300 - 1, id="4300 digits"),
        Decimal("1.10"),
        Decimal("-0"),
        Decimal("1E+1000"),
        dt.timedelta.min,
        dt.timedelta.max,
        dt.timedelta(microseconds=-1),
        dt.time(12, 30, tzinfo=dt.UTC),
        dt.datetime.min.replace(tzinfo=dt.UTC),
        dt.datetime.max.replace(tzinfo=dt.UTC),
        UUID(int=0),
        {"$type": "datetime", "value": "2026-01-01T00:00:00+00:00"},
        {"$type": {"$type": "dict", "value": 1}},
        {"$type": None},
        {},
        [],
        "",
    ],
)
def test_odd_but_valid_values_round_trip(value):
    assert typed(round_trip(value)) == typed(value)


def test_the_stored_form_is_the_documented_one():
    payload = {
        "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "on": dt.date(2026, 1, 1),
        "gap": dt.timedelta(days=1, hours=2),
        "price": Decimal("1.10"),
        "own": {"$type": 1},
        "é": (1, 2.5, None, True),
    }
    assert encoded(payload) == (
        '{"at":{"$type":"datetime","value":"2026-01-01T00:00:00+00:00"},'
        '"on":{"$type":"date","value":"2026-01-01"},'
        '"gap":{"$type":"timedelta","value":"1 02:00:00"},'
        '"price":{"$type":"decimal","value":"1.10"},'
        '"own":{"$type":"dict","value":{"$type":1}},'
        '"é":[1,2.5,null,true]}'
    )


@pytest.mark.parametrize("fold", [0, 1])
def test_an_aware_datetime_keeps_its_instant_in_the_repeated_hour(fold):
    moment = dt.datetime(2026, 10, 25, 2, 30, tzinfo=VIENNA, fold=fold)
    back = round_trip(moment)
    assert back.timestamp() == moment.timestamp()
    assert back.utcoffset() == moment.utcoffset()


@override_settings(USE_TZ=False)
def test_naive_datetimes_are_allowed_without_use_tz():
    naive, aware = dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)  # noqa: DTZ001
    assert round_trip(naive) == naive
    assert round_trip(naive).tzinfo is None
    assert round_trip(aware) == aware


class Size(TextChoices):
    SMALL = "s"


class Level(IntegerChoices):
    HIGH = 3


class Code(str, enum.Enum):  # noqa: UP042  its str() is "Code.A"
    A = "a"


class Float64(float):
    """As numpy's: a float with methods of its own."""

    __slots__ = ()

    def __repr__(self):
        return f"np.float64({float(self)})"


Point = namedtuple("Point", "x y")  # noqa: PYI024


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Size.SMALL, "s"),
        (Level.HIGH, 3),
        (Code.A, "a"),
        (Float64(1.5), 1.5),
        (mark_safe("<b>"), "<b>"),
        (OrderedDict(a=1), {"a": 1}),
        (Point(1, 2), [1, 2]),
        ((1, (2,)), [1, [2]]),
        ({Size.SMALL: 1}, {"s": 1}),
        (
            type("Moment", (dt.datetime,), {})(2026, 1, 1, tzinfo=dt.UTC),
            dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        ),
    ],
)
def test_an_instance_of_a_subclass_arrives_as_its_plain_value(value, plain):
    assert typed(round_trip(value)) == typed(plain)


def test_an_instance_of_a_subclass_that_equals_no_plain_value_is_refused():
    class Fraction(int):
        __hash__ = int.__hash__

        def __eq__(self, other):
            return isinstance(other, Fraction)

    class Nanoseconds(dt.datetime):
        def __eq__(self, other):
            return isinstance(other, Nanoseconds)

        __hash__ = dt.datetime.__hash__

    assert "payload.value must be equal to a plain int" in refusal(Fraction(1))
    moment = Nanoseconds(2026, 1, 1, tzinfo=dt.UTC)
    assert "payload.value must be equal to a plain datetime" in refusal(moment)


def test_a_lazy_translation_is_the_text_of_the_active_language_at_encode():
    lazy = gettext_lazy("Yes")
    with override("de"):
        stored = encoded({"answer": lazy})
    assert decode(stored) == {"answer": "Ja"}
    assert type(decode(stored)["answer"]) is str


def test_any_mapping_is_a_payload_and_later_changes_do_not_reach_it():
    for kind in (dict, OrderedDict, UserDict, MappingProxyType):
        assert encoded(kind({"a": 1})) == '{"a":1}'
    items = [1]
    stored = encoded({"items": items})
    items.append(2)
    assert decode(stored) == {"items": [1]}


@pytest.mark.parametrize("payload", [None, [], "a", 5, [("a", 1)]])
def test_a_payload_that_is_no_mapping_is_refused(payload):
    with pytest.raises(
        InvalidPayload, match=r"^payload must be a dict, got .*\. Pass the arguments"
    ):
        encoded(payload)


def test_the_message_names_the_path_the_value_and_what_to_do():
    with pytest.raises(InvalidPayload) as caught:
        encoded({"items": [0, 1, {"price": math.nan}]})
    assert str(caught.value) == (
        "payload.items[2].price must be a finite number, got nan. Pass None, or text that says it."
    )


@pytest.mark.parametrize(
    ("payload", "start"),
    [
        ({"a b": {"c\n": [[b"x"]]}}, "payload['a b']['c\\n'][0][0] must be"),
        ({"k" * 500: b""}, "payload['kkkk"),
        ({"a": "\U000e0001" * 500 + "\x00"}, "payload.a must be text without NUL"),
        ({"a": {1: 2}}, "a key of payload.a must be text, got 1."),
        ({"a": {None: 2}}, "a key of payload.a must be text, got None."),
        ({1: 2}, "a key of payload must be text, got 1."),
        ({"a": [{"x\x00": 2}]}, "a key of payload.a[0] must be text without NUL"),
        ({"a": [{"x\ud800": 2}]}, "a key of payload.a[0] must be text without NUL"),
        ({"{path}": {"{root}": b""}}, "payload['{path}']['{root}'] must be"),
    ],
)
def test_every_path_is_named(payload, start):
    with pytest.raises(InvalidPayload) as caught:
        encoded(payload)
    assert str(caught.value).startswith(start)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, "a finite number, got nan"),
        (math.inf, "a finite number, got inf"),
        (-math.inf, "a finite number, got -inf"),
        (Float64("nan"), "a finite number, got nan"),
        (Decimal("NaN"), "a finite number, got Decimal('NaN')"),
        (Decimal("sNaN"), "a finite number, got Decimal('sNaN')"),
        (Decimal("-Infinity"), "a finite number"),
        ("a\x00b", "text without NUL and lone surrogates, got 'a\\x00b'"),
        ("a\udcffb", "text without NUL and lone surrogates, got 'a\\udcffb'"),
        ("é\udcffb", "text without NUL and lone surrogates"),
        (mark_safe("\x00"), "text without NUL"),
        (gettext_lazy("a\x00b"), "text without NUL"),
        pytest.param(
            10**4_300, "at most 4,300 digits, got an int of 14,285 bits", id="4301 digits"
        ),
        pytest.param(-(10**5_000), "an int of at most 4,300 digits", id="5001 digits"),
        (dt.datetime(2026, 1, 1), "an aware datetime, got datetime.datetime(2026, 1, 1, 0, 0)"),  # noqa: DTZ001
        (dt.time(1, tzinfo=VIENNA), "a time with an offset"),
        (
            b"raw",
            "a JSON value, date, time, timedelta, Decimal, UUID or model instance, got b'raw'",
        ),
        (bytearray(b"raw"), "got <bytearray object>. Pass"),
        ({1}, "got <set object>. Pass its id, or its parts."),
        (frozenset(), "got <frozenset object>"),
        (range(3), "got <range object>"),
        (deque([1]), "got <collections.deque object>"),
        (1j, "got <complex object>"),
        (MappingProxyType({}), "got <mappingproxy object>"),
        (object(), "got <object object>"),
        (lambda: 1, "got <function object>"),
        (threading.Lock(), "got <_thread.lock object>"),
        (io.BytesIO(b"x"), "got <_io.BytesIO object>"),
        (enum.Enum("Plain", "A").A, "Plain object>"),
        (ValueError, "got <type object>"),
    ],
)
def test_what_cannot_be_stored_is_refused(value, expected):
    for path, payload in ("payload.value", value), ("payload.value[0]", [value]):
        message = refusal(payload)
        assert message.startswith(f"{path} must be ")
        assert expected in message


def test_a_dataclass_is_refused_by_its_class():
    @dataclass
    class Order:
        id: int

    assert "Order object>. Pass its id, or its parts." in refusal(Order(1))


def test_generators_files_and_querysets_are_refused_untouched():
    generator = iter([1, 2])
    file = io.StringIO("content")
    queryset = Group.objects.all()  # a query would fail: no database in this test
    for value in (generator, file, queryset):
        refusal(value)
        refusal([value])
        assert result_text(value, max_bytes=LIMIT)[1]
    assert list(generator) == [1, 2]
    assert file.read() == "content"
    assert queryset._result_cache is None


def test_an_unsaved_model_instance_is_refused():
    deleted = Group.from_db("default", ["id", "name"], [None, "staff"])
    for instance in (Group(), Group(pk=5), deleted):
        expected = "payload.value must be a saved instance, got an unsaved auth.Group."
        assert refusal(instance).startswith(expected)


def test_a_saved_model_instance_is_stored_as_a_reference():
    group = Group.from_db("default", ["id", "name"], [5, "staff"])
    expected = {"$type": "model", "value": {"label": "auth.Group", "pk": 5, "database": "default"}}
    assert json.loads(encoded({"group": group})) == {"group": expected}
    lazy = SimpleLazyObject(lambda: group)  # as request.user is
    assert json.loads(encoded({"group": lazy})) == {"group": expected}


def nested(depth, wrap=lambda inner: [inner], inner=0):
    for _ in range(depth):
        inner = wrap(inner)
    return inner


WRAPPERS = [
    lambda inner: [inner],
    lambda inner: (inner,),
    lambda inner: {"a": inner},
    lambda inner: {"$type": inner},
    lambda inner: OrderedDict(a=inner),
    lambda inner: Point(inner, 1),
]


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize("leaf", [1, Decimal(1), "x"])
def test_nesting_to_the_limit_round_trips_and_one_more_is_refused(wrap, leaf):
    assert typed(round_trip(nested(100, wrap, leaf))) == typed(nested(100, wrap, leaf))
    assert typed(round_trip(nested(MAX_DEPTH, wrap, leaf))) == typed(nested(MAX_DEPTH, wrap, leaf))
    message = refusal(nested(MAX_DEPTH + 1, wrap, leaf))
    assert f"must be nested at most {MAX_DEPTH} deep and not contain itself" in message
    assert len(message) < 500


@pytest.mark.parametrize("depth", [3_000, 100_000])
def test_extreme_nesting_is_refused_without_recursion_errors(depth):
    assert "nested at most" in refusal(nested(depth))


@pytest.mark.parametrize(
    "payload",
    [
        {"password": "hunter2\x00"},
        {"user": {"api_key": [b"hunter2"]}},
        {"auth": {b"hunter2": 1}},
    ],
)
def test_the_refusal_of_a_secret_does_not_tell_it(payload):
    with pytest.raises(InvalidPayload, match=r"must be .*, got ••••••\. ") as caught:
        encoded(payload)
    assert "hunter2" not in str(caught.value)


def test_what_is_a_secret_in_a_refusal_is_the_setting_s(settings):
    settings.PGJOBS = {"SECRET_KEYS": "iban"}
    with pytest.raises(InvalidPayload, match="got ••••••"):
        encoded({"iban": b"AT61"})
    with pytest.raises(InvalidPayload, match="got b'hunter2'"):
        encoded({"password": b"hunter2"})
    with pytest.raises(InvalidPayload, match="bytes of JSON, got more"):
        encoded({"iban": "é" * LIMIT})


@pytest.mark.parametrize("leaf", ["0", "[]", "{}", '{"b": 1}'], ids=str)
def test_what_is_stored_may_be_nested_to_the_limit_and_no_deeper(leaf):
    containers = MAX_DEPTH + (leaf == "0")
    assert decode('{"a":' * containers + leaf + "}" * containers)
    with pytest.raises(InvalidPayload, match="nested at most"):
        decode('{"a":' * (containers + 1) + leaf + "}" * (containers + 1))


def test_a_caller_deep_in_its_stack_gets_a_refusal_too():
    def deeper(left):
        return deeper(left - 1) if left else refusal(nested(100))

    room = sys.getrecursionlimit() - len(_stack())
    assert "nested at most" in deeper(room - 100)


def _stack():
    frames, frame = [], sys._getframe()
    while frame:
        frames.append(frame)
        frame = frame.f_back
    return frames


def test_cycles_are_refused():
    loop = []
    loop.append(loop)
    ring = {"a": {}}
    ring["a"]["ring"] = ring
    own = OrderedDict()
    own["own"] = own
    for value in (loop, ring, own, {"many": [loop] * 3}):
        assert "not contain itself" in refusal(value)


def test_values_that_share_their_parts_a_billion_times_are_refused_at_once():
    bomb = "x"
    for _ in range(100):
        bomb = [bomb, bomb]
    before = time.process_time()
    assert "payload must be at most 100,000 bytes of JSON, got more." in refusal(bomb)
    assert time.process_time() - before < 2


def test_the_size_limit_counts_bytes_of_utf8_exactly():
    frame = len('{"a":""}')
    for character in ("x", "é", "😀"):
        count = (1_000 - frame) // len(character.encode())
        encode({"a": character * count}, max_bytes=1_000)
        with pytest.raises(
            InvalidPayload, match=r"^payload must be at most 1,000 bytes of JSON, got "
        ):
            encode({"a": character * (count + 1)}, max_bytes=1_000)
    encoded({"a": "x" * 99_000})


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"a": "x" * 300_000_000},
        lambda: {"a": ["x" * 100_000] * 3_000},
        lambda: {"a": [None] * 10_000_000},
        lambda: {"x" * 300_000_000: 1},
        lambda: {"a": [10**4_299] * 10_000},
    ],
)
def test_a_huge_payload_is_refused_without_encoding_it(make):
    payload = make()
    tracemalloc.start()
    try:
        with pytest.raises(InvalidPayload, match=r"^payload must be at most 100,000 bytes of JSON"):
            encoded(payload)
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


def test_the_digit_limit_holds_whatever_limit_the_process_has():
    before = sys.get_int_max_str_digits()
    try:
        sys.set_int_max_str_digits(0)
        assert "an int of at most" in refusal(10**4_300)
        sys.set_int_max_str_digits(640)
        assert "an int of at most" in refusal(10**1_000)
        with pytest.raises(InvalidPayload, match="JSON that Python can read"):
            decode('{"a": 1' + "0" * 1_000 + "}")
    finally:
        sys.set_int_max_str_digits(before)


def hostile(error):
    """A class that raises whatever is done with its instances."""

    def refuse(*_args):
        raise error

    names = (
        "__str__",
        "__repr__",
        "__iter__",
        "__len__",
        "__eq__",
        "__bool__",
        "__getattr__",
        "__format__",
    )
    return type("Hostile", (), {**dict.fromkeys(names, refuse), "__class__": property(refuse)})


@pytest.mark.parametrize("base", [str, int, float, list, tuple, dict, dt.date, Decimal, UUID])
def test_a_hostile_subclass_is_refused_or_stored_plainly(base):
    def refuse(*_args):
        raise ZeroDivisionError

    names = ("__str__", "__repr__", "__iter__", "__eq__", "__ne__", "__len__", "isoformat", "keys")
    kind = type("Hostile", (base,), {**dict.fromkeys(names, refuse), "__hash__": base.__hash__})
    arguments = {dt.date: (2026, 1, 1), UUID: (str(UUID(int=0)),)}.get(base, ())
    assert "Hostile object>" in refusal(kind(*arguments))


def test_a_hostile_object_is_refused_without_asking_it():
    assert "Hostile object>" in refusal(hostile(ValueError())())


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ("[]", r"^payload must be a JSON object, got <list object>"),
        ("null", r"^payload must be a JSON object, got None"),
        ('{"$type":"date","value":"2026-01-01"}', r"^payload must be a JSON object, got datetime"),
        ("{", r"^payload must be JSON that Python can read, got '{'"),
        ('{"a": 1' + "0" * 5_000 + "}", r"^payload must be JSON that Python can read"),
        (
            '{"a":' + "[" * 200_000 + "]" * 200_000 + "}",
            r"^payload must be JSON that Python can read",
        ),
        ('{"a":' + "[" * 200 + "]" * 200 + "}", r"^payload\.a\[0\].* must be nested at most"),
        ('{"a": [NaN]}', r"^payload\.a\[0\] must be a number that a float can hold, got nan"),
        (
            '{"a": 1' + "0" * 400 + ".5}",
            r"^payload\.a must be a number that a float can hold, got inf",
        ),
        ('{"a": {"$type": "pickle", "value": "x"}}', r"^payload\.a must be .*, got 'pickle'"),
        ('{"a": {"$type": "unserializable", "value": {}}}', r"^payload\.a must be"),
        ('{"a": {"$type": ["date"], "value": "x"}}', r"^payload\.a must be"),
        ('{"a": {"$type": null, "value": "x"}}', r"^payload\.a must be"),
        ('{"a": {"$type": "date"}}', r"^payload\.a must be .*, got 'date'"),
        ('{"a": {"$type": "date", "value": 5}}', r"^payload\.a must be"),
        ('{"a": {"$type": "date", "value": "2026-01-01", "x": 1}}', r"^payload\.a must be"),
        ('{"a": {"$type": "dict", "value": []}}', r"^payload\.a must be"),
        (
            '{"a": {"$type": "dict", "value": {"b": [{"$type": 1}]}}}',
            r"^payload\.a\.b\[0\] must be",
        ),
        (
            '{"a": [{"$type": "date", "value": "junk"}]}',
            r"^payload\.a\[0\] must be the text of a date, got 'junk'",
        ),
        (
            '{"a": {"$type": "datetime", "value": ""}}',
            r"^payload\.a must be the text of a datetime",
        ),
        ('{"a": {"$type": "time", "value": "25:00"}}', r"^payload\.a must be the text of a time"),
        (
            '{"a": {"$type": "timedelta", "value": "soon"}}',
            r"^payload\.a must be the text of a timedelta",
        ),
        (
            '{"a": {"$type": "timedelta", "value": "9999999999 00:00:00"}}',
            r"^payload\.a must be the text",
        ),
        (
            '{"a": {"$type": "decimal", "value": "1,5"}}',
            r"^payload\.a must be the text of a decimal",
        ),
        (
            '{"a": {"$type": "decimal", "value": "sNaN"}}',
            r"^payload\.a must be the text of a decimal",
        ),
        ('{"a": {"$type": "uuid", "value": "7"}}', r"^payload\.a must be the text of a uuid"),
        ('{"a": {"$type": "model", "value": "auth.Group"}}', r"^payload\.a must be"),
        (
            '{"a": {"$type": "model", "value": {}}}',
            r"^payload\.a must be a model of an installed app, got None",
        ),
        (
            '{"a": {"$type": "model", "value": {"label": "os.system", "pk": 1, "database": "default"}}}',
            r"^payload\.a must be a model of an installed app, got 'os\.system'",
        ),
        (
            '{"a": {"$type": "model", "value": {"label": "auth", "pk": 1, "database": "default"}}}',
            r"^payload\.a must be a model of an installed app, got 'auth'",
        ),
        (
            '{"a": {"$type": "model", "value": {"label": [], "pk": 1, "database": "default"}}}',
            r"^payload\.a must be a model of an installed app",
        ),
        (
            '{"a": {"$type": "model", "value": {"label": "auth.Group", "pk": 1, "database": "mars"}}}',
            r"^payload\.a must be on a database of DATABASES, got 'mars'",
        ),
        (
            '{"a": {"$type": "model", "value": {"label": "auth.Group", "pk": 1, "database": [1]}}}',
            r"^payload\.a must be on a database of DATABASES",
        ),
    ],
)
def test_a_malformed_row_is_refused_by_its_path(stored, message):
    with pytest.raises(InvalidPayload, match=message) as caught:
        decode(stored)
    assert len(str(caught.value)) < 500


def test_a_payload_written_by_sql_needs_no_tags():
    assert decode('{"order_id": 1, "tags": ["a", null, 1.5, true]}') == {
        "order_id": 1,
        "tags": ["a", None, 1.5, True],
    }
    assert decode('{"n": 1' + "0" * 400 + "}") == {"n": 10**400}


def stored_result(value):
    stored, reason = result_text(value, max_bytes=LIMIT)
    assert reason is None
    return stored


def flag(value):
    """The flag stored in place of a result, checked for what every flag must be."""
    stored, reason = result_text(value, max_bytes=LIMIT)
    assert "\\u0000" not in stored
    assert len(stored.encode()) < 5_000
    flagged = json.loads(stored)
    assert flagged["$type"] == "unserializable"
    assert flagged["value"].keys() == {"reason", "repr"}
    assert flagged["value"]["reason"] == reason
    return flagged["value"]


@relaxed
@given(values)
def test_a_result_is_stored_as_a_payload_would_be(value):
    stored, reason = result_text(value, max_bytes=10**7)
    assert reason is None
    if value is None:
        assert stored is None
    else:
        assert stored == encode({"v": value}, max_bytes=10**7)[len('{"v":') : -1]


@relaxed
@given(
    st.recursive(
        st.text(), lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner))
    )
)
def test_a_result_of_any_text_is_stored(value):
    stored = result_text(value, max_bytes=10**7)[0]
    stored.encode()
    assert "\\u0000" not in stored.replace("\\\\", "")


def test_nul_and_lone_surrogates_in_a_result_are_replaced_visibly():
    value = {"a\x00": ["b\x00c", "\udcff"], Size.SMALL: mark_safe("\x00")}
    assert stored_result(value) == '{"a␀":["b␀c","\\\\udcff"],"s":"␀"}'


@pytest.mark.parametrize(
    ("value", "reason", "shown"),
    [
        (math.nan, "result must be a finite number, got nan.", "nan"),
        (
            [0, {"x": Float64("inf")}],
            "result[1].x must be a finite number, got inf.",
            "<list object>",
        ),
        ({1: 2}, "a key of result must be text, got 1.", "<dict object>"),
        ({1, 2}, "result must be a JSON value", "<set object>"),
        (nested(3_000), "must be nested at most", "<list object>"),
        (Group(), "result must be a saved instance", "<django.contrib.auth.models.Group object>"),
        pytest.param(
            10**5_000, "result must be an int of at most", "an int of 16,610 bits", id="5001"
        ),
    ],
)
def test_a_result_that_cannot_be_stored_is_flagged(value, reason, shown):
    flagged = flag(value)
    assert reason in flagged["reason"]
    assert flagged["repr"] == shown


@pytest.mark.parametrize(
    "error", [ValueError(), SystemExit(0), GeneratorExit(), BaseException(), RecursionError()]
)
@pytest.mark.parametrize(
    "wrap", [lambda value: value, lambda value: [value], lambda value: {"a": value}]
)
def test_a_hostile_result_is_flagged(error, wrap):
    reason = flag(wrap(hostile(error)()))["reason"]
    assert f"It raised <{type(error).__name__} object>" in reason


def test_ctrl_c_during_a_result_is_not_swallowed():
    with pytest.raises(KeyboardInterrupt):
        result_text(hostile(KeyboardInterrupt())(), max_bytes=LIMIT)


def test_a_huge_result_is_flagged_with_a_truncation_mark_and_not_copied():
    value = "é" * 50_000_000
    tracemalloc.start()
    try:
        flagged = flag(value)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert flagged["reason"].startswith("result must be at most 100,000 bytes of JSON, got more.")
    assert flagged["repr"].startswith("'ééé")
    assert flagged["repr"].endswith(" [49,999,000 more]")


def test_a_class_name_that_cannot_be_stored_is_made_storable():
    odd = type("Odd", (), {"__module__": "a\x00\ud800"})
    assert "a␀\\ud800.Odd" in flag(odd())["repr"]


def test_content_types_are_models_like_any_other():
    instance = ContentType.from_db("default", ["id", "app_label", "model"], [3, "auth", "group"])
    assert "contenttypes.ContentType" in encoded({"a": [{"b": (instance,)}]})
