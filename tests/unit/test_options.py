"""Options are refused where they are written, by name, whatever is wrong with them."""

from __future__ import annotations

import datetime
import enum
import math
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.db.models import TextChoices

from django_pgjobs import InvalidOption, PgJobsError, get_job
from django_pgjobs.options import (
    LONGEST_DELAY,
    LONGEST_TIMEOUT,
    Options,
    check_kind,
    check_queue,
    check_timeout,
)


class Unprintable:
    def __repr__(self):
        raise RuntimeError


UTC = datetime.UTC
NAIVE = datetime.datetime(2030, 1, 1)  # noqa: DTZ001 -- naive on purpose
ANOTHER = [None, [], {}, b"x", Unprintable()]
LONG = "x" * 100_000

REFUSED = {
    "queue": [
        *ANOTHER,
        "",
        1,
        "x" * 64,
        "ä" * 32,  # 64 bytes
        "a\x00b",
        "a b",
        "a,b",
        "a\nb",
        "a\tb",
        "a\u2028b",
        "a\ud800b",
        "a\u200bb",
        LONG,
    ],
    "priority": [
        *ANOTHER,
        "1",
        1.0,
        1.5,
        True,
        Decimal(1),
        math.nan,
        101,
        -101,
        32_769,
        -32_769,
        10**400,
    ],
    "max_attempts": [*ANOTHER[1:], "5", 0, -1, 32_768, 1.0, True, math.inf, 10**400],
    "run_at": [
        *ANOTHER[1:],
        "2030-01-01",
        0,
        datetime.date(2030, 1, 1),
        NAIVE,
        datetime.datetime.max.replace(tzinfo=UTC),
        datetime.datetime.min.replace(tzinfo=UTC),
        datetime.datetime.min.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=14))),
        datetime.datetime(9999, 12, 31, tzinfo=datetime.timezone(-datetime.timedelta(hours=1))),
    ],
    "delay": [
        *ANOTHER[1:],
        "60",
        True,
        Decimal(1),
        math.nan,
        math.inf,
        -math.inf,
        10**12,
        10**400,
        LONGEST_DELAY + 1,
        datetime.timedelta.max,
    ],
    "subject": [*ANOTHER[1:], 1, "auth.User", User, User(), User(pk=1)],
    "database": [*ANOTHER[1:], "", "nowhere", 1],
}
ALLOWED = {
    "queue": ["q", "x" * 63, "ä" * 31, "A", "%s", "a;b", "a'b", 'a"b', "a\\", "日本", "-", "."],
    "priority": [-100, 0, 100],
    "max_attempts": [None, 1, 32_767],
    "run_at": [
        None,
        datetime.datetime(1970, 1, 1, tzinfo=UTC),
        datetime.datetime(1, 1, 2, tzinfo=UTC),
        datetime.datetime(9999, 12, 31, tzinfo=UTC),
        datetime.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime.datetime(2026, 3, 29, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
    ],
    "delay": [
        None,
        0,
        -5,
        -(10**400),
        1.5,
        LONGEST_DELAY,
        datetime.timedelta(days=-1),
        datetime.timedelta.min,
        datetime.timedelta(days=36_525),
    ],
    "database": [None, "default", "other"],
}


SECONDS = [s for s in REFUSED["delay"] if s not in ([], {}, b"x")]


@pytest.mark.parametrize("timeout", [*SECONDS, 0, -1, 1e-400, LONGEST_TIMEOUT + 1, "1", b"1", []])
def test_a_wrong_timeout_is_refused(timeout):
    with pytest.raises(InvalidOption, match=r"^timeout must be .* above 0 .* got ") as refusal:
        check_timeout(timeout)

    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [(None, None), (1, 1.0), (0.5, 0.5), (datetime.timedelta(minutes=1), 60.0)],
)
def test_a_timeout_is_kept_in_seconds(timeout, seconds):
    assert check_timeout(timeout) == seconds


def pairs(table):
    return [
        pytest.param(name, value, id=f"{name}-{number}")
        for name, values in table.items()
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize(("name", "value"), pairs(REFUSED))
def test_a_wrong_value_is_refused_by_the_name_of_its_option(name, value):
    with pytest.raises(InvalidOption, match=f"^{name} must ") as refusal:
        Options(**{name: value})

    assert len(str(refusal.value)) < 400
    assert isinstance(refusal.value, ValueError)
    assert isinstance(refusal.value, PgJobsError)


@pytest.mark.parametrize(("name", "value"), pairs(ALLOWED))
def test_a_right_value_is_kept(name, value):
    assert getattr(Options(**{name: value}), name) == value


@pytest.mark.parametrize(("name", "value"), pairs(REFUSED))
def test_using_refuses_what_an_option_refuses(name, value):
    with pytest.raises(InvalidOption, match=f"^{name} must "):
        get_job("noop").using(**{name: value})


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [
        (None, 0),
        (0, 0),
        (-5, 0),
        (-(10**400), 0),
        (1, 1),
        (2.5, 2.5),
        (datetime.timedelta(minutes=1), 60),
        (datetime.timedelta(minutes=-1), 0),
        (datetime.timedelta.min, 0),
    ],
)
def test_a_delay_is_a_number_of_seconds_and_never_negative(delay, seconds):
    assert Options(delay=delay).seconds == seconds
    assert type(Options(delay=delay).seconds) is float


def test_a_time_and_a_delay_together_are_refused():
    with pytest.raises(InvalidOption, match="run_at and delay"):
        Options(run_at=datetime.datetime.now(UTC), delay=1)


def test_a_naive_time_is_allowed_where_the_project_uses_naive_times(settings):
    settings.USE_TZ = False

    assert Options(run_at=NAIVE).run_at == NAIVE
    with pytest.raises(InvalidOption, match="run_at must be from 0001-01-02 to 9999-12-31, "):
        Options(run_at=datetime.datetime.min)  # noqa: DTZ901 -- naive on purpose


def test_upper_and_lower_case_are_different_queues():
    assert check_queue("Mail") != check_queue("mail")


class Queues(TextChoices):
    MAIL = "mail"


class Importance(enum.IntEnum):
    HIGH = 10


def test_members_of_enums_stand_for_their_values():
    options = Options(queue=Queues.MAIL, priority=Importance.HIGH)

    assert (options.queue, options.priority) == ("mail", 10)


@pytest.mark.parametrize(
    "kind",
    [
        "",
        " ",
        "a b",
        "a\x00",
        "a\n",
        "x" * 201,
        LONG,
        None,
        1,
        b"x",
        [],
        Unprintable(),
        "a\ud800",
        "a,b",
    ],
    ids=range(14),
)
def test_a_kind_that_cannot_be_a_name_is_refused(kind):
    with pytest.raises(InvalidOption, match=r"^kind must ") as refusal:
        check_kind(kind)

    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    "kind", ["a", "shop.send_receipt", "x" * 200, "日本", "%s", "a'b", "<lambda>"]
)
def test_a_kind_is_any_printable_name(kind):
    assert check_kind(kind) == kind
