"""When rules fire: at daylight saving, after downtime, and what is refused where it is written."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from math import inf, nan
from zoneinfo import ZoneInfo

import pytest

from django_pgjobs import InvalidOption, InvalidPayload, cron, every, job
from django_pgjobs.rules import Cron, Every, zone

HOUR = timedelta(hours=1)


def ticks(rule, start, end):
    """The ticks after `start` and before `end`, each found from the one before it."""
    found, moment = [], start
    while (moment := rule.after(moment)) < end:
        found.append(moment)
    return found


def on(day, expression, tz):
    """The ticks of a local day, in UTC as hours and minutes; those of another date with it."""
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(tz))
    end = (start + timedelta(days=1)).astimezone(UTC)
    rule = Cron(expression, tz)
    return [f"{t:%d %H:%M}" for t in ticks(rule, start.astimezone(UTC) - timedelta(seconds=1), end)]


# -------------------------------------------------------------------------------- daylight saving


@pytest.mark.parametrize(
    ("day", "expression", "tz", "expected"),
    [
        # Clocks go forward: 02:30 does not exist, and 03:00 is the first moment after the gap.
        ("2026-03-29", "30 2 * * *", "Europe/Paris", ["29 01:00"]),
        ("2026-03-08", "30 2 * * *", "America/New_York", ["08 07:00"]),
        ("2026-03-29", "30 1 * * *", "Europe/London", ["29 01:00"]),
        ("2026-10-04", "15 2 * * *", "Australia/Lord_Howe", ["03 15:30"]),  # a gap of half an hour
        ("2026-03-29", "15,45 2,3 * * *", "Europe/Paris", ["29 01:00", "29 01:15", "29 01:45"]),
        ("2026-03-08", "4 16 * * *", "America/New_York", ["08 20:04"]),  # 16:04 is 16:04
        # Clocks go back: 01:30 exists twice, and the first one counts.
        ("2026-11-01", "30 1 * * *", "America/New_York", ["01 05:30"]),
        ("2026-10-25", "30 2 * * *", "Europe/Paris", ["25 00:30"]),
        ("2026-10-25", "30 1 * * *", "Europe/London", ["25 00:30"]),
        ("2026-04-05", "45 1 * * *", "Australia/Lord_Howe", ["04 14:45"]),
        # With a star in the minute or the hour: the time that passes.
        ("2026-10-25", "30 */2 * * *", "Europe/Paris",
         [f"{t:%d %H:%M}" for t in (datetime(2026, 10, 24, 22, 30, tzinfo=UTC),
                                    datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
                                    *(datetime(2026, 10, 25, h, 30, tzinfo=UTC)
                                      for h in (1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21)))]),
    ],
)  # fmt: skip
def test_a_time_of_day_comes_once_a_day(day, expression, tz, expected):
    assert on(day, expression, tz) == expected


CHANGES = [(2026, 3, 6), (2026, 3, 27), (2026, 10, 23), (2026, 10, 30)]  # some days before each
ZONES = ["America/New_York", "Europe/London", "Australia/Lord_Howe", "Asia/Kolkata"]


@pytest.mark.parametrize("tz", ZONES)
@pytest.mark.parametrize("year", [2026, 2027])
def test_a_daily_one_has_365_ticks_a_year_on_365_days(tz, year):
    local = ZoneInfo(tz)
    start, end = (datetime(y, 1, 1, tzinfo=local).astimezone(UTC) for y in (year, year + 1))
    for expression in ("30 1 * * *", "30 2 * * *", "15 2 * * *"):
        days = [t.astimezone(local).date() for t in ticks(Cron(expression, tz), start, end)]
        assert len(days) == len(set(days)) == 365


@pytest.mark.parametrize("tz", ["America/New_York", "Europe/London", "Asia/Kolkata"])
def test_an_hourly_one_has_a_tick_in_every_real_hour(tz):
    for day in CHANGES:
        begin = datetime(*day, tzinfo=UTC)
        for expression, apart in (("0 * * * *", HOUR), ("*/15 * * * *", HOUR / 4)):
            found = ticks(Cron(expression, tz), begin, begin + timedelta(days=4))
            assert {b - a for a, b in itertools.pairwise(found)} == {apart}


@pytest.mark.parametrize(
    "change", [datetime(2026, 4, 4, tzinfo=UTC), datetime(2026, 10, 3, tzinfo=UTC)]
)
def test_where_clocks_change_by_half_an_hour_an_hourly_one_has_one_longer_pause(change):
    def pauses(expression):
        rule = Cron(expression, "Australia/Lord_Howe")
        found = ticks(rule, change, change + timedelta(days=2))
        return Counter(b - a for a, b in itertools.pairwise(found))

    for expression in ("0 * * * *", "30 * * * *"):
        assert pauses(expression) == {HOUR: 45, 1.5 * HOUR: 1}
    assert pauses("*/15 * * * *").keys() == {HOUR / 4}


def test_an_interval_knows_no_daylight_saving():
    rule = Every(timedelta(hours=24))
    before = datetime(2026, 3, 28, 12, tzinfo=ZoneInfo("Europe/Paris")).astimezone(UTC)
    assert rule.after(before) - before == timedelta(hours=24)


@pytest.mark.parametrize(
    ("tz", "change"),
    [
        ("Europe/Paris", datetime(2026, 3, 29, 1, tzinfo=UTC)),
        ("Europe/Paris", datetime(2026, 10, 25, 1, tzinfo=UTC)),
        ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
        ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize(
    "expression", ["30 2 * * *", "45 1 * * *", "*/20 1-3 * * *", "15,45 2,3 * * *"]
)
def test_whoever_looks_and_however_late_finds_the_same_ticks(tz, change, expression):
    rule = Cron(expression, tz)
    first = rule.after(change - timedelta(days=3))
    known = [first, *ticks(rule, first, change + timedelta(days=2))]
    for minutes in range(-90, 200, 7):
        moment = change + timedelta(minutes=minutes, microseconds=1)
        past = [tick for tick in known if tick <= moment]
        assert rule.after(moment) == known[len(past)]
        for most in (1, 3):
            assert rule.latest(first, moment, most) == past[-most:]


def test_a_long_downtime_is_no_long_computation():
    end = datetime(2026, 1, 1, tzinfo=UTC)
    for rule in (Cron("* * * * *", "Europe/Paris"), Every(timedelta(minutes=1))):
        found = rule.latest(datetime(1990, 1, 1, tzinfo=UTC), end, 100)
        assert found == [end - n * timedelta(minutes=1) for n in reversed(range(100))]
    assert rule.latest(end, end - HOUR, 1) == []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("0 0 29 2 *", "2028-02-29"), ("0 0 * * 7", "2026-01-04"), ("0 0 * * MON#5", "2026-03-30")],
)
def test_what_is_rare_comes_too(expression, expected):
    found = cron(expression, tz="UTC").rule.after(datetime(2026, 1, 1, tzinfo=UTC))
    assert found == datetime.fromisoformat(expected).replace(tzinfo=UTC)


# --------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "expression",
    ["60 * * * *", "*/0 * * * *", "* * * *", "* * * * * *", "", "٣ * * * *", "0 0 30 2 *",
     "0 0 31 2,4 *", "5-1 * * * *", "nonsense", "* " * 150, None, 5],
)  # fmt: skip
def test_what_is_no_cron_expression_or_never_fires_is_refused(expression):
    with pytest.raises(InvalidOption, match=r"^cron must be .*got "):
        cron(expression, tz="UTC")


@pytest.mark.parametrize(
    "name", ["Mars/X", "UTC+2", "America", "../etc", "", "\0", "localtime", 5, "x" * 100]
)
def test_an_unknown_time_zone_is_refused(name):
    with pytest.raises(InvalidOption, match=r"^tz must be the name of a time zone"):
        cron("0 3 * * *", tz=name)
    assert zone("EST5EDT").key == "EST5EDT"


@pytest.mark.parametrize(
    "units",
    [{}, {"seconds": 0}, {"seconds": nan}, {"hours": inf}, {"seconds": -5, "minutes": 1}, {"minutes": "5"},
     {"seconds": True}, {"seconds": 0.5}, {"hours": 24 * 367}, {"hours": 10**400}],
)  # fmt: skip
def test_an_interval_that_is_none_is_refused(units):
    with pytest.raises(InvalidOption, match=r"^\w+ must be .*got "):
        every(**units)


def test_units_are_added_up_and_the_default_zone_is_the_project_s(settings):
    settings.TIME_ZONE = "Asia/Tokyo"
    assert every(hours=1, minutes=30).rule == Every(timedelta(hours=1.5))
    assert cron("0  3 * * *").rule == Cron("0 3 * * *", "Asia/Tokyo")


@pytest.mark.parametrize(
    ("schedule", "error", "match"),
    [
        ("0 3 * * *", InvalidOption, "schedule must be cron"),
        (5, InvalidOption, "schedule must be cron"),
        ([every(minutes=1), every(minutes=1)], InvalidOption, "names that differ"),
        (every(minutes=1), InvalidPayload, r"must fit scheduled\(a\), got: missing 'a'"),
        (every(minutes=1, payload={"a": 1, "b": 2}), InvalidPayload, "unknown 'b'"),
        (every(minutes=1, payload={"a": object()}), InvalidPayload, "payload.a must be"),
    ],
)
def test_a_schedule_that_does_not_fit_is_refused_where_it_is_declared(
    kinds, schedule, error, match
):
    with pytest.raises(error, match=match):

        @job(kind="scheduled", schedule=schedule)
        def handler(a): ...

    assert "scheduled" not in kinds


def test_two_kinds_cannot_have_a_schedule_of_one_name(kinds):
    job(kind="first", schedule=every(minutes=1, name="night"))(lambda: None)
    with pytest.raises(InvalidOption, match="'night' for both"):
        job(kind="second", schedule=every(minutes=1, name="night"))(lambda: None)


@pytest.mark.parametrize(
    ("options", "match"),
    [({"missed": "some"}, "missed must be 'skip', 'latest' or 'all'"), ({"name": 5}, "name must be"),
     ({"name": "x" * 201}, "name must be"), ({"payload": [1]}, "payload must be a dict")],
)  # fmt: skip
def test_other_options_are_checked_too(options, match):
    with pytest.raises(InvalidOption, match=match):
        every(minutes=1, **options)


def test_without_cronsim_an_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cronsim", None)
    assert every(minutes=5)
    with pytest.raises(InvalidOption, match=r"Install django-pgjobs\[cron\]"):
        cron("0 3 * * *")
