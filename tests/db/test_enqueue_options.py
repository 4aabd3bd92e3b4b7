"""What a row holds after an enqueue, and the times that a job may have."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Model
from django.db.models.functions import Now

from django_pgjobs import InvalidOption, enqueue, get_job, job
from django_pgjobs.models import Job
from tests.db.rows import claimed, ids, row
from tests.unit.test_options import Importance, Queues

pytestmark = pytest.mark.django_db

UTC = datetime.UTC
BERLIN = ZoneInfo("Europe/Berlin")


def noop(**options):
    return get_job("noop").using(**options).enqueue()


def now():
    return Job.objects.values_list(Now(), flat=True).first()


def test_the_returned_job_is_the_row():
    enqueued = enqueue("add", a=1, b=2)

    stored = row(enqueued)
    assert {f: getattr(enqueued, f) for f in stored} == stored
    assert enqueued == Job.objects.get()
    assert not enqueued._state.adding
    assert (stored["kind"], stored["payload"]) == ("add", {"a": 1, "b": 2})


def test_the_returned_job_of_an_enqueue_with_every_option_is_the_row_too():
    user = User.objects.create(username="u")
    later = datetime.datetime(2030, 1, 1, tzinfo=UTC)

    enqueued = noop(queue="mail", priority=-3, max_attempts=2, run_at=later, subject=user)

    stored = row(enqueued)
    assert {f: getattr(enqueued, f) for f in stored} == stored
    assert (stored["queue"], stored["priority"], stored["max_attempts"]) == ("mail", -3, 2)
    assert stored["run_at"] == later
    assert (stored["subject_type"], stored["subject_id"]) == ("auth.user", str(user.pk))


def test_an_enqueue_is_one_statement(django_assert_num_queries):
    with django_assert_num_queries(1):
        enqueue("add", a=1)


def test_what_the_jobs_of_a_kind_have_in_common_is_no_parameter():
    sent = []

    def note(execute, sql, params, many, context):
        sent.append(params)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        enqueue("add", a=1)

    assert sent == [('{"a":1}',)]


class Misleading(str):
    """A name that shows itself as another one."""

    __slots__ = ()

    def __format__(self, spec):
        return "x', '{}', 0, 1), ('y"


@pytest.mark.parametrize(
    "name", ["it's", "100%", "%s", "%(payload)s", "a\\'b", "größe", "名前", Misleading("mail")]
)
def test_a_name_is_stored_as_it_is_whatever_characters_it_has(kinds, name):
    @job(kind=name)
    def handle(a): ...

    handle.using(queue=name).enqueue(a="%s")

    stored = Job.objects.get()
    assert (stored.kind, stored.queue) == (str.__str__(name), str.__str__(name))
    assert stored.payload == {"a": "%s"}


def test_the_declared_options_are_those_of_the_row(kinds):
    @job(queue="mail", priority=9, max_attempts=1)
    def declared(): ...

    stored = row(enqueue("declared"))

    assert (stored["queue"], stored["priority"], stored["max_attempts"]) == ("mail", 9, 1)


def test_without_an_own_maximum_the_setting_counts(settings):
    settings.PGJOBS = {"MAX_ATTEMPTS": 9}

    assert row(enqueue("noop"))["max_attempts"] == 9
    assert row(noop(max_attempts=2))["max_attempts"] == 2
    get_job("noop").enqueue_many([{}])
    assert Job.objects.filter(max_attempts=9).count() == 2


def test_members_of_enums_are_stored_as_their_values():
    stored = row(noop(queue=Queues.MAIL, priority=Importance.HIGH))

    assert (stored["queue"], stored["priority"]) == ("mail", 10)


def test_a_job_enqueued_under_an_alias_has_the_present_name_of_its_kind(kinds):
    @job(aliases=["formerly"])
    def presently(): ...

    assert row(enqueue("formerly"))["kind"] == "presently"


@pytest.mark.parametrize(
    "delay", [0, -5, -0.5, datetime.timedelta(days=-1), datetime.timedelta.min, None]
)
def test_a_delay_that_is_over_is_due_now(delay):
    enqueued = noop(delay=delay)

    assert ids(claimed()) == [enqueued.id]


@pytest.mark.parametrize("delay", [90, 90.0, datetime.timedelta(seconds=90)])
def test_a_delay_counts_from_the_enqueue_by_the_databases_clock(delay):
    with connection.cursor() as cursor:
        cursor.execute("select pg_sleep(0.05)")  # the transaction's start is not the enqueue
    before = datetime.timedelta(seconds=90) + _clock()

    enqueued = noop(delay=delay)

    assert before <= enqueued.run_at <= datetime.timedelta(seconds=90) + _clock()
    assert enqueued.run_at - enqueued.created_at == datetime.timedelta(seconds=90)
    assert claimed() == []


def _clock():
    with connection.cursor() as cursor:
        cursor.execute("select statement_timestamp()")
        return cursor.fetchone()[0]


def test_the_longest_delay_is_stored():
    assert noop(delay=datetime.timedelta(days=36_525)).run_at.year > 2100


@pytest.mark.parametrize(
    "run_at",
    [
        datetime.datetime(1970, 1, 1, tzinfo=UTC),
        datetime.datetime(1, 1, 2, tzinfo=UTC),
        datetime.datetime(2020, 2, 29, 12, tzinfo=ZoneInfo("Asia/Tokyo")),
    ],
)
def test_a_time_in_the_past_is_due_now_and_kept(run_at):
    enqueued = noop(run_at=run_at)

    assert row(enqueued)["run_at"] == enqueued.run_at == run_at
    assert ids(claimed()) == [enqueued.id]


@pytest.mark.parametrize("day", [30, 31])
def test_a_time_at_the_end_of_the_calendar_can_be_stored_listed_and_written(day):
    end = datetime.datetime(9999, 12, day, tzinfo=UTC)

    enqueued = noop(run_at=end)

    assert row(enqueued)["run_at"] == end
    assert Job.objects.get().run_at.astimezone(BERLIN).isoformat().startswith("9999-12-")
    assert claimed() == []


@pytest.mark.parametrize(
    ("local", "instant"),
    [
        # The hour that comes twice: `fold` says which one is meant.
        (datetime.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN), (10, 25, 0, 30)),
        (datetime.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN), (10, 25, 1, 30)),
        # The hour that is skipped: counted on from the time before it, or back with fold.
        (datetime.datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN), (3, 29, 1, 30)),
        (datetime.datetime(2026, 3, 29, 2, 30, fold=1, tzinfo=BERLIN), (3, 29, 0, 30)),
    ],
)
def test_a_time_around_the_change_of_clocks_is_the_instant_that_python_says(local, instant):
    enqueued = noop(run_at=local)

    expected = datetime.datetime(2026, *instant, tzinfo=UTC)
    assert row(enqueued)["run_at"] == expected
    assert enqueued.run_at == expected


@pytest.mark.usefixtures("subject_of_no_truth")
def test_a_subject_that_is_false_is_a_subject_all_the_same():
    user = User.objects.create(username="u")

    assert row(noop(subject=user))["subject_id"] == str(user.pk)


@pytest.fixture
def subject_of_no_truth(monkeypatch):
    monkeypatch.setattr(Model, "__bool__", lambda self: False, raising=False)


def test_a_subject_whose_key_does_not_fit_is_refused_before_any_sql(django_assert_num_queries):
    user = User.objects.create(username="u")
    user.pk = 10**200

    with django_assert_num_queries(0), pytest.raises(InvalidOption, match=r"^subject must"):
        noop(subject=user)


def test_enqueue_many_gives_every_row_the_same_options():
    mail = get_job("add").using(queue="mail", priority=4, delay=60, max_attempts=3)

    mail.enqueue_many([{"a": 1}, {"a": 2}])

    rows = list(Job.objects.order_by("id").values())
    assert [(r["kind"], r["queue"], r["priority"], r["max_attempts"]) for r in rows] == [
        ("add", "mail", 4, 3)
    ] * 2
    assert [r["payload"] for r in rows] == [{"a": 1}, {"a": 2}]
    assert claimed() == []
