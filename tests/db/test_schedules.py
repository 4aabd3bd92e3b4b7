"""Schedules: one job per schedule and tick, whatever happens to whom; and rows that follow the code."""

from __future__ import annotations

import datetime
import itertools
import statistics
import threading
from collections import Counter
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import DatabaseError, IntegrityError, connection, connections, transaction
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now
from django.utils import timezone

from django_pgjobs import Unique, checks, cron, every, job, registry, schedules, ticker
from django_pgjobs.board import Board
from django_pgjobs.keeper import Keeper
from django_pgjobs.leases import Lease
from django_pgjobs.models import Job, Schedule
from django_pgjobs.rules import Cron, Every
from django_pgjobs.ticker import Ticker
from tests.db.rows import AGO, execute
from tests.db.sessions import blocks_somebody, in_thread
from tests.waiting import eventually

MINUTE = timedelta(minutes=1)


def make(name="one", **columns):
    """Store a schedule, every minute if nothing else is said, as staff or plain SQL do."""
    rule = {} if "cron" in columns else {"every": MINUTE}
    return Schedule.objects.create(**{"name": name, "kind": "noop", **rule, **columns})


def overdue(ago, **columns):
    """Store a schedule whose next tick was so long ago, by the database's clock."""
    return make(**{"since": Now() - ago - MINUTE, "next_at": Now() - ago, **columns})


def ticks(**filters):
    """The ticks that have a job, in order of their times."""
    told = Job.objects.filter(**filters).order_by("run_at").values_list("meta", flat=True)
    return [(meta["schedule"], datetime.datetime.fromisoformat(meta["tick"])) for meta in told]


def database_now():
    [[now]] = execute("select statement_timestamp()", {})
    return now


# --------------------------------------------------------------------------------------- one tick


@pytest.mark.django_db
def test_a_tick_is_a_job_of_the_kind_with_the_payload_and_the_time_of_the_tick():
    schedule = overdue(timedelta(seconds=5), kind="add", payload={"a": 2})
    due = schedule.next_at = Schedule.objects.get().next_at

    assert schedules.tick("default") == (1, [])

    made, row = Job.objects.get(), Schedule.objects.get()
    assert (made.kind, made.payload, made.queue, made.run_at) == ("add", {"a": 2}, "default", due)
    assert made.meta == {"schedule": "one", "tick": due.isoformat()}
    assert (row.last_at, row.next_at) == (due, due + MINUTE)
    assert schedules.tick("default") == (0, [])


@pytest.mark.django_db
def test_a_new_one_has_its_first_tick_worked_out_and_fires_nothing_of_the_past():
    make("interval", every=timedelta(hours=1))
    make("cron", cron="0 3 * * *", tz="Europe/Paris")

    schedules.tick("default")

    assert not Job.objects.exists()
    rows = {row.name: row for row in Schedule.objects.all()}
    assert rows["interval"].next_at == rows["interval"].since + timedelta(hours=1)
    assert rows["cron"].next_at == Cron("0 3 * * *", "Europe/Paris").after(rows["cron"].since)
    assert 3590 < schedules.seconds_to_tick("default", [rows["cron"].pk]) <= 3600


@pytest.mark.django_db
def test_the_kind_s_own_options_hold_for_the_jobs_of_a_schedule(kinds):
    job(kind="scheduled", queue="nightly", priority=7, max_attempts=2)(lambda: None)
    overdue(MINUTE, kind="scheduled")

    schedules.tick("default")

    assert Job.objects.values_list("queue", "priority", "max_attempts").get() == ("nightly", 7, 2)


@pytest.mark.django_db
def test_ticks_are_the_same_where_times_are_naive(settings):
    settings.USE_TZ = False
    settings.TIME_ZONE = "America/New_York"
    overdue(timedelta(seconds=5), every=None, cron="* * * * *", tz="Europe/Paris", missed="all")
    twice = datetime.datetime(2025, 11, 2, 6, 30, tzinfo=datetime.UTC)  # the second 01:30 there
    make("then", every=timedelta(days=366), next_at=twice, since=twice, missed="all")

    assert schedules.tick("default") == (2, [])
    assert schedules.tick("default") == (0, [])

    assert ("then", twice) in ticks()
    assert ticks()[-1][0] == "one"


@pytest.mark.parametrize("conflict", ["skip", "raise"])
@pytest.mark.django_db
def test_a_tick_that_another_job_stands_for_has_fired(kinds, caplog, conflict):
    caplog.set_level("INFO", logger="django_pgjobs.schedules")
    there = job(kind="single", unique=Unique(conflict=conflict))(lambda: None).enqueue()
    overdue(timedelta(seconds=5), kind="single")
    due = Schedule.objects.get().next_at

    assert schedules.tick("default") == (1, [])

    row = Schedule.objects.get()
    assert (row.last_at, row.next_at) == (due, due + MINUTE)
    assert Job.objects.get() == there
    assert f"Schedule one: job {there.pk} stands for the tick" in caplog.text


# ----------------------------------------------------------------------------------- missed ticks

DAY = timedelta(hours=26)


@pytest.mark.parametrize(
    ("missed", "late", "made"),
    [
        ("latest", DAY, 1),
        ("latest", timedelta(0), 1),
        ("skip", DAY, 1),  # the one of this minute is not missed
        ("all", DAY, schedules.MOST_MISSED),
        ("all", 3 * MINUTE, 4),
    ],
)
@pytest.mark.django_db
def test_what_was_missed_is_made_up_for_as_the_schedule_says(missed, late, made):
    overdue(late, missed=missed)
    started = database_now()

    schedules.tick("default")

    moments = [moment for _, moment in ticks()]
    assert len(moments) == made
    assert all(b - a == MINUTE for a, b in itertools.pairwise(moments))
    assert started - MINUTE <= moments[-1] <= database_now()
    assert Schedule.objects.get().next_at == moments[-1] + MINUTE


@pytest.mark.django_db
def test_a_daily_one_that_skips_does_not_make_up_for_this_morning():
    overdue(timedelta(hours=5), every=timedelta(days=1), missed="skip")
    due = Schedule.objects.get().next_at

    schedules.tick("default")

    assert not Job.objects.exists()
    assert Schedule.objects.get().next_at == due + timedelta(days=1)


@pytest.mark.django_db
def test_what_was_off_does_not_fire_for_the_past_when_it_is_switched_on():
    overdue(DAY, missed="all")
    assert Schedule.objects.disable() == 1
    assert schedules.seconds_to_tick("default") is None
    schedules.tick("default")

    assert Schedule.objects.enable() == 1
    assert Schedule.objects.enable() == 0

    schedules.tick("default")
    assert not Job.objects.exists()
    assert 59 < schedules.seconds_to_tick("default") <= 60


# ----------------------------------------------------------------------------------- many workers


def test_twelve_workers_make_one_job_for_each_tick(transactional_db):
    for n in range(30):
        overdue(3 * MINUTE, name=f"s{n}", missed="all")
    for n in range(3):
        make(f"fast{n}", every=timedelta(seconds=1), missed="all")
    workers = [Ticker("default") for _ in range(12)]
    try:
        for worker in workers:
            worker.wake(scheduled=True)
        eventually(lambda: Job.objects.filter(meta__schedule="fast2").count() >= 2)
    finally:
        for worker in workers:
            worker.end()

    count = Counter(ticks())
    assert set(count.values()) == {1}
    slow = Counter(name for name, _ in count if name.startswith("s"))
    assert slow == {f"s{n}": 4 for n in range(30)}
    for name in ("fast0", "fast1", "fast2"):
        moments = sorted(moment for each, moment in count if each == name)
        assert all(b - a == timedelta(seconds=1) for a, b in itertools.pairwise(moments))
    late = [made.created_at - made.run_at for made in Job.objects.filter(meta__schedule="fast0")]
    assert statistics.median(late) < timedelta(seconds=2)  # less than by a look at the table alone


@pytest.mark.parametrize("moment", ["before the job", "before the note", "before the commit"])
def test_a_worker_killed_at_a_tick_leaves_it_to_another(transactional_db, monkeypatch, moment):
    overdue(timedelta(seconds=5))
    enqueue, save = schedules._enqueue, Schedule.save

    def lose_the_session():
        with connection.cursor() as cursor:
            cursor.execute("select pg_terminate_backend(pg_backend_pid())")

    def killed_at_the_insert(*arguments, **options):
        if moment == "before the note":
            enqueue(*arguments, **options)
        lose_the_session()

    def killed_at_the_commit(*arguments, **options):
        save(*arguments, **options)
        assert Job.objects.exists()
        lose_the_session()

    with monkeypatch.context() as patch:
        if moment == "before the commit":
            patch.setattr(Schedule, "save", killed_at_the_commit)
        else:
            patch.setattr(schedules, "_enqueue", killed_at_the_insert)
        with pytest.raises(DatabaseError):
            schedules.tick("default")
    connection.close()
    assert not Job.objects.exists()

    assert schedules.tick("default") == (1, [])

    assert len(ticks()) == 1


def test_a_row_that_somebody_holds_is_passed_over_and_the_others_fire(other_session):
    overdue(MINUTE, name="held")
    overdue(MINUTE, name="free")
    other_session.execute("select 1 from django_pgjobs_schedule where name = 'held' for update")

    assert schedules.tick("default") == (1, [])

    assert {name for name, _ in ticks()} == {"free"}


@pytest.mark.django_db
def test_the_clock_of_the_host_decides_nothing(monkeypatch):
    overdue(timedelta(seconds=1), every=timedelta(hours=1))
    make("later", every=timedelta(hours=1))

    def wrong(*_):
        return datetime.datetime(2049, 1, 1, tzinfo=datetime.UTC)

    monkeypatch.setattr(timezone, "now", wrong)
    monkeypatch.setattr("time.time", lambda: wrong().timestamp())

    assert schedules.tick("default") == (2, [])
    assert schedules.tick("default") == (0, [])
    assert [name for name, _ in ticks()] == ["one"]


# ------------------------------------------------------------------------------- what cannot fire


@pytest.mark.django_db
def test_what_cannot_fire_is_told_and_holds_nothing_up(caplog):
    overdue(MINUTE, name="payload", kind="add")
    overdue(MINUTE, name="zone", cron="* * * * *", tz="Mars/X", every=None)
    overdue(MINUTE, name="other code's", kind="of_another_service")
    overdue(MINUTE, name="good")

    fired, refused = schedules.tick("default")

    assert fired == 1
    assert {row.name for row in Schedule.objects.filter(pk__in=refused)} == {"payload", "zone"}
    assert {name for name, _ in ticks()} == {"good"}
    assert "Schedule payload cannot be fired: The payload of 'add'" in caplog.text
    assert "got 'Mars/X'" in caplog.text
    assert schedules.seconds_to_tick("default", refused) > 0  # nobody's turn comes round at once


@pytest.mark.parametrize(
    "columns",
    [
        {"name": ""},
        {"kind": ""},
        {"tz": ""},
        {"every": None},
        {"cron": "* * * * *", "every": MINUTE},
        {"every": timedelta(0)},
        {"every": timedelta(days=367)},
        {"missed": "some"},
        {"payload": [1]},
    ],
)
@pytest.mark.django_db
def test_a_row_that_is_no_schedule_cannot_be_stored(columns):
    with pytest.raises(IntegrityError), transaction.atomic():
        make(**columns)


@pytest.mark.django_db
def test_infinity_cannot_be_stored():
    make()
    for column in ("since", "next_at"):
        with pytest.raises(IntegrityError), transaction.atomic():
            Schedule.objects.update(**{column: RawSQL("'infinity'::timestamptz", ())})


@pytest.mark.django_db
def test_a_check_reports_renamed_kinds_and_what_cannot_fire():
    make("good")
    make("renamed", kind="nopp")
    make("payload", kind="add")
    make("zone", cron="0 3 * * *", tz="Mars/X")
    make("off", kind="gone", enabled=False)

    found = {m.msg.split("'")[1]: m for m in checks.check_schedules(databases=["default"])}

    assert {name: m.id for name, m in found.items()} == {
        "renamed": "pgjobs.W005",
        "payload": "pgjobs.W006",
        "zone": "pgjobs.W006",
    }
    assert "Did you mean 'noop'" in found["renamed"].hint
    assert checks.check_schedules() == []


# ------------------------------------------------------------------------------------- from code


def declare(*given, kind="scheduled"):
    registry._kinds.pop(kind, None)

    def handler(a: int = 0) -> None: ...

    return job(kind=kind, schedule=list(given) if len(given) != 1 else given[0])(handler)


def stored():
    rows = Schedule.objects.order_by("name")
    return {row.name: row for row in rows}


@pytest.mark.django_db
def test_rows_follow_the_code_and_what_staff_switched_off_stays_off(kinds):
    declare(every(minutes=5), cron("0 3 * * *", tz="Europe/Paris", payload={"a": 1}, missed="all"))
    schedules.synchronise("default")
    five, three = "scheduled: every 0:05:00", "scheduled: 0 3 * * * Europe/Paris"
    rows = stored()
    assert [(r.kind, r.payload, r.missed, r.rule, r.from_code) for r in rows.values()] == [
        ("scheduled", {"a": 1}, "all", Cron("0 3 * * *", "Europe/Paris"), True),
        ("scheduled", {}, "latest", Every(timedelta(minutes=5)), True),
    ]

    schedules.tick("default")
    before = {name: row.__dict__ | {"_state": None} for name, row in stored().items()}
    schedules.synchronise("default")
    assert {name: row.__dict__ | {"_state": None} for name, row in stored().items()} == before

    Schedule.objects.filter(name=five).disable()
    declare(every(minutes=5))  # now the only one, so it has the kind's name
    schedules.synchronise("default")
    rows = stored()
    assert list(rows) == ["scheduled", three, five]
    assert rows["scheduled"].is_active
    assert rows[three].removed_at is not None
    assert rows[three].next_at is None

    declare(every(minutes=5), cron("0 3 * * *", tz="Europe/Paris", payload={"a": 2}))
    schedules.synchronise("default")
    rows = stored()
    assert rows[three].is_active
    assert (rows[three].payload, rows[three].missed) == ({"a": 2}, "latest")
    assert not rows[five].enabled
    assert rows[five].removed_at is None


@pytest.mark.django_db
def test_a_changed_rule_counts_from_now_and_a_changed_payload_changes_no_time(kinds):
    declare(every(minutes=5))
    schedules.synchronise("default")
    Schedule.objects.update(since=AGO, next_at=Now() - DAY)
    declare(every(minutes=5, payload={"a": 1}))
    schedules.synchronise("default")
    assert stored()["scheduled"].since == AGO

    declare(every(minutes=6, payload={"a": 1}))
    schedules.synchronise("default")

    schedules.tick("default")
    assert not Job.objects.exists()
    row = stored()["scheduled"]
    assert row.next_at == row.since + timedelta(minutes=6)


@pytest.mark.django_db
def test_schedules_of_code_that_is_not_here_and_rows_made_by_hand_are_left_alone(kinds, caplog):
    make("another service's", kind="not_here", from_code=True)
    make("scheduled", every=timedelta(hours=9))
    declare(every(minutes=5))

    schedules.synchronise("default")

    assert [row.rule for row in stored().values()] == [Every(MINUTE), Every(timedelta(hours=9))]
    assert all(row.is_active for row in stored().values())
    assert "one made by hand has its name" in caplog.text


def test_many_workers_start_at_once(transactional_db, kinds):
    declare(*[every(minutes=n) for n in range(1, 9)])
    together = threading.Barrier(2)

    def start():
        together.wait(10)
        for _ in range(5):
            schedules.synchronise("default")

    with in_thread(start) as first, in_thread(start) as second:
        first()
        second()

    assert Schedule.objects.count() == 8


# ------------------------------------------------------------------------------------ the workers


@pytest.fixture
def keeper(transactional_db):
    board = Board.create(1)
    lease = Lease.register(execute, board, pid=1, queues=None, threads=1)
    keeper = Keeper("default")
    keeper.leases = [lease]
    yield keeper
    keeper.close()
    board.close()


def test_a_project_without_schedules_has_no_thread_for_them(keeper):
    make(enabled=False)
    keeper.keep(keeper.leases, stopping=False)
    assert keeper.ticker._thread is None


def test_a_heartbeat_tells_of_a_schedule_and_its_ticks_follow(keeper, monkeypatch):
    monkeypatch.setattr(ticker, "LOOK", 0.1)
    make(every=timedelta(seconds=1))
    keeper.keep(keeper.leases, stopping=False)
    eventually(Job.objects.exists)
    Schedule.objects.disable()
    eventually(
        lambda: keeper.ticker._connection is None
    )  # and with the last one goes the connection


def test_what_the_code_declares_is_stored_by_a_worker_that_starts(keeper, kinds):
    declare(every(minutes=5))
    keeper.keep(keeper.leases, stopping=False)
    eventually(lambda: Schedule.objects.filter(next_at__isnull=False).exists())


def test_a_drain_takes_what_is_due_along(transactional_db):
    overdue(MINUTE)
    call_command("runjobs", drain=True, verbosity=0)
    assert Job.objects.get().status == "done"


def test_a_ticker_goes_on_after_its_connection_is_lost(transactional_db):
    make(every=timedelta(seconds=1))
    worker = Ticker("default")
    worker.wake(scheduled=True)
    try:
        eventually(Job.objects.exists)
        pid = worker._connection.connection.info.backend_pid
        execute("select pg_terminate_backend(%(pid)s)", {"pid": pid})
        count = Job.objects.count()
        eventually(lambda: Job.objects.count() > count)
        assert set(Counter(ticks()).values()) == {1}
    finally:
        worker.end()
        connections.close_all()


def test_a_round_without_an_answer_can_be_cut_off_and_is_tried_again(other_session, caplog):
    overdue(MINUTE)
    other_session.execute("lock table django_pgjobs_schedule")
    worker = Ticker("default")
    worker.wake(scheduled=True)
    try:
        eventually(lambda: blocks_somebody(other_session))
        worker.cut(60.0)
        assert "trying again" not in caplog.text
        worker.cut(0.0)
        eventually(lambda: "Schedules cannot be looked after, trying again" in caplog.text)
        other_session.rollback()
        eventually(Job.objects.exists)
    finally:
        worker.end()
