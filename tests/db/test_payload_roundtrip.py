from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from uuid import UUID

import pytest
from django.contrib.auth.models import Group, User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from django_pgjobs.exceptions import InvalidPayload
from django_pgjobs.failures import cut
from django_pgjobs.payloads import decode, encode, result_text

pytestmark = pytest.mark.django_db

LIMIT = 100_000
in_one_transaction = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def through_jsonb(text):
    with connection.cursor() as cursor:
        cursor.execute("select (%s::jsonb)::text", [text])
        return cursor.fetchone()[0]


def arrived(payload):
    return decode(through_jsonb(encode(payload, max_bytes=LIMIT)))


text = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    text,
    st.datetimes(timezones=st.just(dt.UTC)),
    st.timedeltas(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.uuids(),
)
keys = st.one_of(text, st.just("$type"))
values = st.recursive(
    leaves, lambda inner: st.one_of(st.lists(inner), st.dictionaries(keys, inner)), max_leaves=10
)


def typed(value):
    if isinstance(value, dict):
        return {key: typed(part) for key, part in value.items()}
    return [typed(part) for part in value] if isinstance(value, list) else (type(value), value)


@in_one_transaction
@given(st.dictionaries(keys, values))
def test_a_payload_comes_back_from_jsonb_equal_and_of_equal_types(payload):
    assert typed(arrived(payload)) == typed(payload)


@in_one_transaction
@given(st.floats(allow_nan=False, allow_infinity=False))
@example(1e23)
@example(1.7976931348623157e308)
@example(5e-324)
def test_every_float_arrives_as_an_equal_number(value):
    assert arrived({"value": value})["value"] == value


@in_one_transaction
@given(st.recursive(st.text(), lambda inner: st.dictionaries(st.text(), inner), max_leaves=5))
def test_jsonb_takes_the_result_of_any_text(value):
    through_jsonb(result_text(value, max_bytes=LIMIT)[0])


@in_one_transaction
@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\x00\ud800")), max_size=300))
def test_jsonb_and_text_columns_take_any_cut_text(value):
    through_jsonb(json.dumps(cut(value, 200)))
    with connection.cursor() as cursor:
        cursor.execute("select %s::text", [cut(value, 200)])


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (2**53 + 1, 2**53 + 1),
        (10**40, 10**40),
        (Decimal("1.10"), Decimal("1.10")),
        (UUID(int=5), UUID(int=5)),
        (1.0, 1.0),
        (0.1, 0.1),
        (1e-300, 1e-300),
        (-0.0, 0.0),
        (1e23, int(1e23)),
        (1e16, 10**16),
        (-1e300, -int(1e300)),
        (9999999999999998.0, 9999999999999998.0),
    ],
)
def test_numbers_arrive_as_documented(sent, got):
    value = arrived({"value": sent})["value"]
    assert repr(value) == repr(got)


def test_a_number_over_the_range_of_floats_arrives_as_what_jsonb_holds():
    assert decode(through_jsonb('{"n": 1e400}')) == {"n": 10**400}


@pytest.mark.parametrize(
    "value", ["a\x00b", "\ud800", float("nan"), b"x", {1}, 10**5_000, [0] * LIMIT], ids=range(7)
)
def test_a_refused_payload_sends_no_sql_and_leaves_the_transaction_usable(
    value, django_assert_num_queries
):
    with django_assert_num_queries(0), pytest.raises(InvalidPayload):
        encode({"value": value}, max_bytes=LIMIT)
    assert Group.objects.count() == 0


def test_a_model_instance_is_loaded_again_as_its_row_is_now(django_assert_num_queries):
    group = Group.objects.create(name="old")
    with django_assert_num_queries(0):
        stored = encode({"groups": [group]}, max_bytes=LIMIT)
    Group.objects.filter(pk=group.pk).update(name="new")
    loaded = decode(through_jsonb(stored))["groups"][0]
    assert type(loaded) is Group
    assert loaded == group
    assert (loaded.name, loaded._state.db) == ("new", "default")


def test_a_row_that_is_gone_is_said_to_be_gone():
    group = Group.objects.create(name="x")
    stored = encode({"group": group}, max_bytes=LIMIT)
    Group.objects.all().delete()
    with pytest.raises(
        InvalidPayload,
        match=r"^payload\.group must be an existing auth\.Group on 'default', got pk \d+\. "
        r"It does not exist any more\.$",
    ):
        decode(stored)


def test_a_deleted_instance_is_refused():
    group = Group.objects.create(name="x")
    group.delete()
    with pytest.raises(InvalidPayload, match=r"^payload\.group must be a saved instance"):
        encode({"group": group}, max_bytes=LIMIT)


@pytest.mark.parametrize(
    "pk",
    [
        '"junk"',
        "[]",
        "{}",
        "null",
        "1e40",
        "1.5",
        "true",
        '"1; drop table"',
        '{"$type": "uuid", "value": "00000000-0000-0000-0000-000000000000"}',
    ],
)
def test_a_primary_key_that_fits_no_row_is_refused_and_the_transaction_usable(pk):
    row = f'{{"a": {{"$type": "model", "value": {{"label": "auth.Group", "pk": {pk}, "database": "default"}}}}}}'
    with pytest.raises(InvalidPayload, match=r"^payload\.a must be"):
        decode(through_jsonb(row))
    assert Group.objects.count() == 0


def test_instances_are_found_by_the_base_manager_whatever_the_model():
    user = User.objects.create(username="ada", is_active=False)
    kind = ContentType.objects.get_for_model(Group)
    assert arrived({"user": user, "kind": kind}) == {"user": user, "kind": kind}
