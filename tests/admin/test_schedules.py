"""The pages of schedules: what is made there fires, and who may do what."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models.functions import Now

from django_pgjobs import Unique, job, masking, schedules
from django_pgjobs.admin.schedule_forms import ScheduleForm
from django_pgjobs.models import Job, Schedule
from django_pgjobs.rules import Cron
from tests.admin.conftest import PEOPLE

LIST = "/admin/django_pgjobs/schedule/"
GIVEN = {"name": "night", "kind": "add", "payload": '{"a": 1}', "cron": "30 2 * * *",
         "tz": "Europe/Paris", "every": "", "missed": "latest", "enabled": "on"}  # fmt: skip


@pytest.fixture(autouse=True)
def staff(monkeypatch):
    """People who have to do with schedules alone."""
    monkeypatch.setitem(PEOPLE, "timekeeper", ("view_schedule", "change_schedule"))
    monkeypatch.setitem(PEOPLE, "starter", ("view_schedule", "run_schedule"))


def make(**columns):
    columns = {"name": "one", "kind": "noop", "every": timedelta(minutes=5), **columns}
    return Schedule.objects.create(**columns)


def test_one_made_here_fires_and_its_page_shows_the_next_five_ticks(as_user):
    client = as_user("superuser")
    assert client.get(f"{LIST}add/").status_code == 200
    assert client.post(f"{LIST}add/", GIVEN).status_code == 302

    row = Schedule.objects.get()
    assert (row.rule, row.payload, row.is_active) == (
        Cron("30 2 * * *", "Europe/Paris"),
        {"a": 1},
        True,
    )
    schedules.tick("default")
    page = client.get(f"{LIST}{row.pk}/change/").text
    assert page.count("a.m. CET") + page.count("a.m. CEST") == 5
    assert "30 2 * * * (Europe/Paris)" in client.get(LIST).text


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "5-1 * * * *"}, "cron"),
        ({"cron": ""}, "cron"),
        ({"every": "00:05:00"}, "cron"),
        ({"cron": "", "every": "0"}, "every"),
        ({"cron": "", "every": "nan"}, "every"),
        ({"cron": "", "every": "400 00:00:00"}, "every"),
        ({"tz": "Mars/X"}, "tz"),
        ({"tz": ""}, "tz"),
        ({"payload": "{}"}, "payload"),
        ({"payload": "[1]"}, "payload"),
        ({"kind": "noop", "payload": "[]"}, "payload"),
        ({"kind": "noop", "payload": "0"}, "payload"),
        ({"kind": "noop", "payload": "null"}, "payload"),
        ({"payload": '{"a": "\\u0000"}'}, "payload"),
        ({"payload": '{"a": "\\ud800"}'}, "payload"),
        ({"payload": f'{{"a": {"9" * 5_000}}}'}, "payload"),
        ({"payload": f'{{"a": {"[" * 200}{"]" * 200}}}'}, "payload"),
        ({"payload": f'{{"a": {"[" * 100_000}{"]" * 100_000}}}'}, "payload"),
        ({"payload": f'{{"a": "{"x" * 200_000}"}}'}, "payload"),
        ({"payload": '{"a": 1, "c": 2}'}, "payload"),
        ({"payload": '{"a": {"$type": "nonsense", "value": ""}}'}, "payload"),
        ({"kind": "nobody's"}, "kind"),
        ({"missed": "some"}, "missed"),
        ({"name": ""}, "name"),
    ],
)
def test_what_would_not_fire_is_refused_with_the_reason(as_user, wrong, field):
    answer = as_user("superuser").post(f"{LIST}add/", {**GIVEN, **wrong})
    assert list(answer.context["adminform"].form.errors) == [field]
    assert not Schedule.objects.exists()


@pytest.mark.parametrize("depth", [500, 900, 950, 980, 1_000, 5_000, 20_000])
def test_however_deep_a_payload_is_it_is_a_fault_of_the_form(as_user, depth):
    payload = f'{{"a": {"[" * depth}{"]" * depth}}}'
    answer = as_user("superuser").post(f"{LIST}add/", {**GIVEN, "payload": payload})
    assert list(answer.context["adminform"].form.errors) == ["payload"]


def test_no_payload_at_all_is_an_empty_one(as_user):
    answer = as_user("superuser").post(f"{LIST}add/", {**GIVEN, "kind": "noop", "payload": ""})
    assert answer.status_code == 302
    assert Schedule.objects.get().payload == {}


@pytest.mark.parametrize(
    "columns",
    [
        {"kind": "gone"},
        {"kind": "add"},
        {"every": None, "cron": "nonsense"},
        {"every": None, "cron": "0 3 * * *", "tz": "Mars/X"},
    ],
)
def test_what_cannot_fire_can_be_switched_off_and_not_on(as_user, columns):
    client = as_user("superuser")
    row = make(**columns)
    address = f"{LIST}{row.pk}/change/"
    given = posted(client, row)
    assert client.post(address, {**given, "enabled": ""}).status_code == 302
    assert not Schedule.objects.get().enabled

    given = posted(client, row)
    assert client.post(address, {**given, "enabled": "on"}).status_code == 200
    assert client.post(address, {**given, "enabled": "", "name": "other"}).status_code == 200
    assert not Schedule.objects.filter(enabled=True).exists()


def test_a_fault_is_told_in_the_reader_s_language_alone(as_user, settings):
    settings.LANGUAGE_CODE = "de"
    client = as_user("superuser")
    answer = client.post(f"{LIST}add/", {**GIVEN, "cron": "nonsense"})
    [[told]] = answer.context["adminform"].form.errors.values()
    assert told == "Das ist kein Cron-Ausdruck, der irgendwann auslöst."
    page = client.get(f"{LIST}{make(every=None, cron='nonsense').pk}/change/").text
    assert told in page
    assert "must be" not in page


def test_without_cronsim_the_form_names_what_is_missing(as_user, monkeypatch):
    monkeypatch.setitem(sys.modules, "cronsim", None)
    answer = as_user("superuser").post(f"{LIST}add/", GIVEN)
    assert "cronsim" in answer.context["adminform"].form.errors["cron"][0]


def test_the_reason_is_the_handler_s_own(as_user):
    answer = as_user("superuser").post(f"{LIST}add/", {**GIVEN, "payload": "{}"})
    assert "must fit add(a: &#x27;int&#x27;, b: &#x27;int&#x27; = 0), got: missing" in answer.text


def test_a_change_of_the_rule_counts_from_now_and_one_of_the_payload_does_not(as_user):
    client = as_user("superuser")
    row = make(cron="30 2 * * *", tz="Europe/Paris", every=None, next_at=Now() - timedelta(days=3))
    before = Schedule.objects.get()
    client.post(f"{LIST}{row.pk}/change/", {**GIVEN, "payload": '{"a": 2}'})
    assert Schedule.objects.get().next_at == before.next_at

    client.post(f"{LIST}{row.pk}/change/", {**GIVEN, "cron": "31 2 * * *"})
    after = Schedule.objects.get()
    assert (after.next_at, after.since > before.since) == (None, True)
    schedules.tick("default")
    assert not Job.objects.exists()


def posted(client, row):
    """What a browser posts of the form of a schedule."""
    form = client.get(f"{LIST}{row.pk}/change/").context["adminform"].form
    shown = {name: form[name].value() for name in form.fields}
    shown["every"] = shown["every"] or ""
    initial = {
        f"initial-{name}": shown[name] for name in shown if form.fields[name].show_hidden_initial
    }
    return {name: value for name, value in {**shown, **initial}.items() if value is not False}


def test_the_zone_of_an_interval_counts_nothing_anew(as_user):
    client, row = as_user("superuser"), make(next_at=Now() + timedelta(minutes=1))
    before = Schedule.objects.get()
    client.post(f"{LIST}{row.pk}/change/", {**posted(client, row), "tz": "Europe/Paris"})
    after = Schedule.objects.get()
    assert (after.tz, after.since, after.next_at) == ("Europe/Paris", before.since, before.next_at)


def test_a_form_that_is_saved_late_switches_nothing_on_again(as_user):
    client, row = as_user("superuser"), make()
    stale = posted(client, row)
    Schedule.objects.disable()
    assert client.post(f"{LIST}{row.pk}/change/", {**stale, "name": "two"}).status_code == 302
    assert Schedule.objects.values_list("name", "enabled").get() == ("two", False)

    client.post(f"{LIST}{row.pk}/change/", {**posted(client, row), "enabled": "on"})
    assert Schedule.objects.get().enabled


def test_a_tick_that_fires_while_one_is_saved_stays_fired(as_user, monkeypatch):
    row = make(kind="add", payload={"a": 1}, next_at=Now())
    real = ScheduleForm.clean

    def clean(form):
        schedules.tick("default")
        return real(form)

    monkeypatch.setattr(ScheduleForm, "clean", clean)
    given = {**GIVEN, "cron": "", "every": "00:05:00", "tz": "UTC"}
    as_user("superuser").post(f"{LIST}{row.pk}/change/", given)
    assert Schedule.objects.get().name == "night"
    schedules.tick("default")
    assert Job.objects.count() == 1


def test_of_one_from_code_only_the_switch_can_be_changed(as_user):
    client = as_user("superuser")
    row = make(from_code=True)
    page = client.get(f"{LIST}{row.pk}/change/").text
    assert 'name="enabled"' in page
    assert 'name="every"' not in page
    client.post(f"{LIST}{row.pk}/change/", {**GIVEN, "enabled": ""})
    after = Schedule.objects.get()
    assert (after.name, after.cron, after.enabled) == ("one", "", False)
    assert client.post(f"{LIST}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    client.post(LIST, {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"})
    assert Schedule.objects.exists()


def chosen(client, act, *rows):
    data = {"action": act, "_selected_action": [row.pk for row in rows]}
    return client.post(LIST, data, follow=True)


def test_acts_switch_and_run_and_are_recorded(as_user):
    client = as_user("superuser")
    on, off = make(next_at=Now()), make(name="off", enabled=False)
    chosen(client, "disable", on, off)
    assert set(Schedule.objects.values_list("enabled", "next_at")) == {(False, None)}
    chosen(client, "enable", on)
    assert Schedule.objects.get(pk=on.pk).enabled
    chosen(client, "run_now", off)
    made = Job.objects.get()
    assert (made.kind, made.meta) == ("noop", {"schedule": "off"})
    entries = LogEntry.objects.order_by("pk").values_list("object_repr", "change_message")
    assert list(entries) == [("one", "disable"), ("one", "enable"), ("off", f"run_now #{made.pk}")]
    assert f"Run now #{made.pk}" in client.get(f"{LIST}{off.pk}/history/").text
    assert "off (by hand)" in client.get(f"/admin/django_pgjobs/job/{made.pk}/change/").text


@pytest.mark.parametrize(("act", "word"), [("enable", "on"), ("disable", "off")])
def test_it_is_told_how_many_were_switched_already(as_user, act, word):
    client = as_user("superuser")
    both = [make(name=name, enabled=name == "a") for name in ("a", "b")]
    for expected in (
        f"1 schedule is {word}. 1 was {word} already.",
        f"Nothing was changed. 2 were {word} already.",
    ):
        [told] = chosen(client, act, *both).context["messages"]
        assert str(told) == expected
    assert LogEntry.objects.count() == 1


def test_running_what_cannot_run_says_why(as_user):
    answer = chosen(as_user("superuser"), "run_now", make(kind="add"), make(name="x", kind="gone"))
    assert [m.level_tag for m in answer.context["messages"]] == ["error", "error", "warning"]
    assert not Job.objects.exists()
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("conflict", ["skip", "raise"])
def test_running_what_another_job_stands_for_says_so(as_user, kinds, conflict):
    job(kind="single", unique=Unique(conflict=conflict))(lambda: None)
    client, row = as_user("superuser"), make(kind="single")
    chosen(client, "run_now", row)
    there = Job.objects.get()
    told = [str(m) for m in chosen(client, "run_now", row).context["messages"]]
    expected = f"No job was enqueued for one: job #{there.pk} stands for it."
    assert told == [expected, "Nothing was changed."]
    assert Job.objects.get() == there
    assert LogEntry.objects.count() == 1


@pytest.mark.parametrize(
    ("person", "acts"),
    [("nobody", ()), ("timekeeper", ("enable", "disable")), ("starter", ("run_now",))],
)
def test_only_who_has_the_permission_may_act(as_user, person, acts):
    client = as_user(person)
    row = make(enabled=False)
    for act in ("run_now", "enable", "disable"):
        chosen(client, act, row)
    told = LogEntry.objects.values_list("change_message", flat=True)
    assert {message.partition(" ")[0] for message in told} == set(acts)
    assert client.get(f"{LIST}{row.pk}/change/").status_code == (403 if person == "nobody" else 200)


def test_the_page_masks_secrets_for_who_may_not_edit(as_user):
    row = make(payload={"password": "canary"})
    text = as_user("starter").get(f"{LIST}{row.pk}/change/").text
    assert masking.MASK in text
    assert "canary" not in text


def test_whoever_may_only_look_gets_the_styles_and_the_copy_button(as_user):
    page = as_user("starter").get(f"{LIST}{make().pk}/change/").text
    assert "django_pgjobs/admin.css" in page
    assert "django_pgjobs/admin.js" in page


def test_the_list_tells_on_from_off(as_user):
    make()
    make(name="two", enabled=False)
    page = as_user("starter").get(LIST).text
    assert '<span class="pgjobs-status pgjobs-done">on</span>' in page
    assert '<span class="pgjobs-status pgjobs-dead">off</span>' in page


@pytest.mark.parametrize(("seconds", "exact"), [(20, True), (60, False)])
def test_ticks_are_shown_with_their_seconds_where_they_have_any(as_user, seconds, exact):
    start = datetime(2026, 1, 1, tzinfo=UTC)
    row = make(every=timedelta(seconds=seconds), since=start, next_at=start)
    page = as_user("starter").get(f"{LIST}{row.pk}/change/").text
    assert len(set(re.findall(r"<div>(.*?) UTC</div>", page))) == 5
    assert bool(re.search(r", \d\d:\d\d:[24]0 UTC", page)) is exact


def test_at_the_end_of_time_there_are_no_more_ticks(as_user):
    client = as_user("superuser")
    last = datetime(9999, 12, 30, tzinfo=UTC)
    day = make(every=timedelta(days=1), next_at=last, tz="Pacific/Kiritimati")
    cron = make(name="cron", every=None, cron="0 3 * * *", next_at=last)
    assert "Dec. 30, 9999, 2 p.m. +14" in client.get(f"{LIST}{day.pk}/change/").text
    assert "Dec. 30, 9999, midnight UTC" in client.get(f"{LIST}{cron.pk}/change/").text


def test_switching_on_what_was_removed_from_the_code_says_that_it_does_not_fire(as_user):
    row = make(from_code=True, enabled=False, removed_at=Now())
    answer = chosen(as_user("superuser"), "enable", row)
    [told] = map(str, answer.context["messages"])
    assert told == "one is on, but does not fire: it was removed from the code."
    assert Schedule.objects.get().enabled


def test_rows_that_sql_has_filled_oddly_are_shown_all_the_same(as_user):
    client = as_user("superuser")
    bad = make(name="bad", every=None, cron="nonsense", tz="Mars/X", kind="gone")
    odd = make(name="odd", every=timedelta(seconds=1.5), removed_at=Now(), from_code=True)
    assert client.get(LIST).text.count("without a handler") == 1
    assert "There is no such time zone." in client.get(f"{LIST}{bad.pk}/change/").text
    assert client.get(f"{LIST}{odd.pk}/change/").status_code == 200
    made = Job.objects.create(kind="noop", meta={"schedule": "x", "tick": "2026-13-01"})
    assert "x (2026-13-01)" in client.get(f"/admin/django_pgjobs/job/{made.pk}/change/").text
    row = make(name="utc", cron="0 3 * * *", every=None)
    tick = next(schedules.upcoming(Schedule.objects.timed().get(pk=row.pk)))
    assert (tick.tzinfo, tick.hour) == (UTC, 3)


@pytest.mark.parametrize(
    "address",
    [
        f"{LIST}?payload__password__startswith=c",
        f"{LIST}?kind__startswith=n",
        "/admin/django_pgjobs/worker/?host__startswith=w",
    ],
)
def test_no_column_can_be_asked_for_in_an_address(as_user, monkeypatch, address):
    monkeypatch.setitem(PEOPLE, "viewer", ("view_schedule", "view_worker"))
    make(payload={"password": "canary"})
    client = as_user("viewer")
    assert client.get(address).status_code == 400
    assert client.get(f"{LIST}?enabled__exact=1&from_code__exact=0").text.count(">one<") == 1
