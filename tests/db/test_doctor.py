"""What the doctor finds, each ailment brought about; and what it says of a healthy database."""

from __future__ import annotations

import datetime
import re

import psycopg
import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.db.models.functions import Now

from django_pgjobs import doctor, functions, poolers, schema, symptoms
from django_pgjobs.doctor import LOOKS, Severity, server
from django_pgjobs.models import Job, Queue, Schedule, Worker
from tests.app.jobs import noop
from tests.db import rows
from tests.db.plans import JOB
from tests.roles import Role
from tests.roles import sql as role_sql

pytestmark = pytest.mark.django_db

OK, INFO, WARNING, ERROR = Severity


def findings(check: str) -> list[doctor.Finding]:
    found = [one for one in doctor.examine("default") if one.check == check]
    assert found
    assert all(bool(one.do) == (one.severity != OK) for one in found), found
    return found


def only(check: str) -> doctor.Finding:
    [one] = findings(check)
    return one


def sql(statement: str, *params) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params or None)


def test_a_healthy_database_has_one_line_for_each_look():
    noop.enqueue()
    rows.make_worker()
    found = doctor.examine("default")
    assert [one.check for one in found] == list(LOOKS)
    assert {one.severity for one in found} == {OK}


# -------------------------------------------------------------------------------------- the schema


def test_a_migration_that_is_not_applied_is_all_that_is_told():
    MigrationRecorder(connection).record_unapplied("django_pgjobs", "0001_initial")
    [one] = doctor.examine("default")
    assert (one.check, one.severity) == ("migrations", ERROR)
    assert "0001_initial" in one.what


@pytest.mark.parametrize(
    "name", ["pgjobs_job_claim", "pgjobs_job_unique_key", "pgjobs_worker_living"]
)
def test_a_missing_index(name):
    sql(f"drop index {name}")
    one = only("indexes")
    assert one.severity == ERROR
    assert name in one.what


def test_an_invalid_index():
    sql("update pg_index set indisvalid = false where indexrelid = 'pgjobs_job_claim'::regclass")
    one = only("indexes")
    assert "invalid" in one.what
    assert one.do == "REINDEX INDEX CONCURRENTLY pgjobs_job_claim."


def test_a_role_that_is_no_worker():
    role = Role("worker")
    role_sql(
        f"revoke delete on {JOB} from {role.name}", f"alter table {JOB} enable row level security"
    )
    with role.assumed():
        lacking, hidden = findings("role")
    assert (lacking.severity, hidden.severity) == (ERROR, ERROR)
    assert lacking.what == f"The role {role.name!r} has no DELETE on {JOB}: no worker starts as it."
    assert "no policy for SELECT" in hidden.what
    assert hidden.do.endswith(f" grants --worker {role.name} --row-security")


@pytest.mark.parametrize("one", functions.functions(), ids=lambda one: one.name)
def test_a_missing_function(one):
    sql(f"drop function {one.signature}")
    told = only("functions")
    assert told.severity == WARNING
    assert f"{one.signature} is missing" in told.what
    assert "sqlmigrate" in told.do


@pytest.mark.parametrize("one", functions.functions(), ids=lambda one: one.name)
def test_a_function_that_somebody_has_changed(one):
    changed = one._replace(body=one.body.replace("return next", "/* changed */ return next"))
    sql(changed.create("public"))
    told = only("functions")
    assert told.severity == ERROR
    assert f"{one.signature} is not that of this release" in told.what
    MigrationRecorder(connection).record_applied("django_pgjobs", "9999_of_a_later_release")
    assert only("functions").severity == OK, "it is that of the later release"


# -------------------------------------------------------------------------------------- the server


@pytest.fixture
def old_at_once(monkeypatch):
    """Take a snapshot for old as soon as it is there."""
    monkeypatch.setattr(server, "_OLD", 0.0)


@pytest.mark.django_db(transaction=True)
def test_an_old_snapshot_names_who_holds_it(other_session, old_at_once):
    other_session.execute("set transaction isolation level repeatable read")
    other_session.execute("select 1")
    noop.enqueue()
    one = only("snapshot")
    pid = other_session.info.backend_pid
    assert one.severity == WARNING
    assert f"the session {pid} (" in one.what
    assert f"pg_terminate_backend({pid})" in one.do
    other_session.rollback()
    assert str(pid) not in only("snapshot").what


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_has_written_and_idles_holds_it_too(other_session, old_at_once):
    other_session.execute(f"insert into {JOB} (kind) values ('noop')")  # noqa: S608
    assert str(other_session.info.backend_pid) in only("snapshot").what


def test_how_bad_an_old_snapshot_is_goes_by_its_time_and_else_by_its_transactions():
    times = {0.0: OK, 61.0: INFO, 301.0: WARNING, 3_601.0: ERROR}
    assert {seconds: server._severity_of(5, seconds) for seconds in times} == times
    assert [server._severity_of(age, None) for age in (999_999, 1_000_000)] == [OK, WARNING]


@pytest.mark.parametrize("holder", server._REMEDIES)
def test_whoever_holds_a_snapshot_there_is_something_to_do(holder):
    """The tests' server has no standby and no prepared transactions; what it would say is said here."""
    rows = {symptoms.SEES_ALL: [(True, "me")], symptoms.SNAPSHOTS: [(holder, "x1", "y", 9, 400.0)]}
    [(severity, what, do)] = server.snapshot(doctor.Patient("default", lambda sql: rows[sql]))
    assert severity == WARNING
    assert f"for 0:06:40, 9 transactions, by the {holder} x1 (y)" in what
    assert "x1" in do or holder == "standby"


def test_every_holder_has_a_remedy():
    assert set(re.findall(r"select '([a-z ]+)'", symptoms.SNAPSHOTS)) == set(server._REMEDIES)


def of_vacuum(monkeypatch, **seen):
    """What is said where the server's statistics are these: they come late, and cannot be set."""
    figures = {"live": 100, "dead": 0, "is_on": True, "begins": 1_000.0, "ago": 5.0, **seen}
    patient = doctor.Patient("default", lambda *_args, **_params: [tuple(figures.values())])
    return list(server.vacuum(patient))


def test_dead_rows_are_told_when_they_are_many(monkeypatch):
    assert of_vacuum(monkeypatch, dead=9_000) == []
    assert of_vacuum(monkeypatch, dead=40_000, live=50_000, begins=9_000.0) == []
    lagging = of_vacuum(monkeypatch, dead=60_000, live=90_000, ago=None)
    assert [(severity, what[:15]) for severity, what, _ in lagging] == [
        (WARNING, "Autovacuum lags")
    ]
    assert "never" in lagging[0][1]
    full = of_vacuum(monkeypatch, dead=60_000, live=5, begins=1e9)
    assert [what for _, what, _ in full] == [
        "The table of jobs has 60,000 dead rows beside 5 living ones."
    ]


def test_autovacuum_that_is_off_for_the_table():
    sql(f"alter table {JOB} set (autovacuum_enabled = false)")
    one = only("vacuum")
    assert one.severity == ERROR
    assert "Autovacuum is off" in one.what


def test_where_autovacuum_begins_is_what_the_table_says():
    with connection.cursor() as cursor:
        cursor.execute(f"update pg_class set reltuples = 50000 where oid = '{JOB}'::regclass")  # noqa: S608
        cursor.execute(symptoms.VACUUM)
        [(_, _, is_on, begins, _)] = cursor.fetchall()
    assert (is_on, begins) == (True, 1_500.0)  # 1,000 and a hundredth, as the migration says


@pytest.mark.django_db(transaction=True)
def test_an_index_much_larger_than_what_it_holds(monkeypatch):
    monkeypatch.setattr(server, "_LARGE_INDEX", 2**18)
    Job.objects.bulk_create([Job(kind="noop") for _ in range(20_000)])
    sql(f"analyze {JOB}")
    assert only("bloat").severity == OK
    Job.objects.all().delete()
    sql(f"vacuum analyze {JOB}")
    told = {one.do.split()[3].rstrip(",") for one in findings("bloat")}
    assert f"{JOB}_pkey" in told
    assert "pgjobs_job_claim" in told
    assert all(one.severity == WARNING and "estimate" in one.what for one in findings("bloat"))


def test_a_pooler_in_transaction_mode(monkeypatch):
    monkeypatch.setattr(poolers, "is_lent", lambda _connection: True)
    found = findings("pooler")
    assert {one.severity for one in found} == {WARNING}
    assert any("pgjobs.W001" in one.what for one in found)


@pytest.mark.django_db(databases=["default", "other"])
def test_a_way_around_a_pooler_that_leads_to_another_database(settings):
    settings.PGJOBS = {"LISTEN_DATABASE": "other"}
    assert "pgjobs.W008" in only("pooler").what


@pytest.mark.parametrize(("ahead", "said"), [(30.0, "30.0 s ahead of"), (-30.0, "s behind")])
def test_clocks_that_differ(monkeypatch, ahead, said):
    real = server.time.time
    monkeypatch.setattr(server.time, "time", lambda: real() + ahead)
    one = only("clock")
    assert one.severity == WARNING
    assert said in one.what


def test_what_a_role_may_not_see_spoils_nothing_else(monkeypatch):
    monkeypatch.setitem(
        LOOKS, "bloat", (lambda p: p.ask("select * from pg_authid_that_is_not_there"), "")
    )
    found = {one.check: one for one in doctor.examine("default")}
    assert found["bloat"].severity == WARNING
    assert "could not be looked at" in found["bloat"].what
    assert found["queues"].severity == OK


@pytest.mark.django_db(transaction=True)
def test_a_role_with_the_privileges_of_a_worker_can_ask_everything(other_session, old_at_once):
    other_session.execute("set transaction isolation level repeatable read")
    other_session.execute("select 1")
    # Dead rows of other tests would be told.
    sql("truncate django_pgjobs_job; select pg_stat_force_next_flush()")
    noop.enqueue()
    Job.objects.all().delete()  # so that there is an age to see
    rows.make_worker()
    sql("create role pgjobs_plain")
    try:
        sql("grant usage on schema public to pgjobs_plain")
        sql("grant select, insert, update, delete on all tables in schema public to pgjobs_plain")
        sql("grant usage on all sequences in schema public to pgjobs_plain")
        sql("set role pgjobs_plain")
        found = doctor.examine("default")
    finally:
        sql("reset role")
        sql("drop owned by pgjobs_plain")
        sql("drop role pgjobs_plain")
    assert [one.what for one in found if "could not" in one.what] == []
    [hidden] = [one for one in found if one.severity != OK]
    assert (hidden.check, hidden.severity) == ("snapshot", INFO)
    assert hidden.do == "GRANT pg_read_all_stats TO pgjobs_plain."


# ------------------------------------------------------------------------------------ what is done


def test_a_schedule_whose_kind_has_no_code():
    Schedule.objects.create(name="nightly", kind="gone", every=datetime.timedelta(days=1))
    one = only("schedules")
    assert one.severity == ERROR
    assert "nightly" in one.what


def test_waiting_jobs_without_code():
    lost = rows.make(kind="gone")
    one = only("kinds")
    assert one.severity == ERROR
    assert str(lost.pk) in one.what
    assert "'gone'" in one.what


def test_workers_that_are_silent_or_dead_and_hold_jobs():
    silent = rows.make_worker(host="quiet")
    Worker.objects.update(heartbeat_at=rows.AGO)
    dead = rows.make_worker(host="gone", died_at=Now(), death="signal 9")
    rows.make("running", locked_by=dead.pk)
    told = [one.what for one in findings("workers")]
    assert [str(silent) in told[0], str(dead) in told[1], "signal 9" in told[2]] == [True] * 3


def test_jobs_that_are_held_by_no_worker_that_is_known():
    lost, _young = (
        rows.make("running", locked_by=4242, locked_at=since) for since in (rows.AGO, Now())
    )
    one = only("workers")
    assert one.severity == WARNING
    assert f"held by workers that have no row: 1 job, {lost.pk}." in one.what
    assert "reapjobs" in one.do


def test_workers_that_stopped_as_they_should_are_no_finding():
    rows.make_worker(died_at=Now(), death="stopped")
    rows.make_worker(died_at=rows.AGO, death="signal 9")
    assert only("workers").severity == OK


def test_a_queue_with_due_jobs_that_nobody_serves():
    noop.enqueue()
    noop.using(queue="mail").enqueue()
    noop.using(queue="later", delay=60).enqueue()
    noop.using(queue="paused").enqueue()
    Queue.objects.create(name="paused", paused_at=rows.AGO)
    rows.make_worker(exclude=["mail"])
    one = only("queues")
    assert one.severity == ERROR
    assert "'mail'" in one.what


def test_a_server_that_is_gone_is_no_finding(monkeypatch):
    def cut(_patient):
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setitem(LOOKS, "indexes", (cut, ""))
    with pytest.raises(psycopg.OperationalError):
        doctor.examine("default")


def test_the_names_of_all_indexes_are_known():
    assert "pgjobs_job_claim" in set(schema._names(Job))
    assert "pgjobs_job_unique_key" in set(schema._names(Job))
