"""The SQL functions of maintenance: what they do for plain SQL, and that Python does the same by them."""

from __future__ import annotations

import datetime

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from psycopg import errors

from django_pgjobs import conf, functions, reaper, upkeep
from django_pgjobs.models import Figure, Gate, Job, Worker
from tests.db.rows import AGO, FUTURE, execute, make, make_worker, row

pytestmark = [pytest.mark.newest, pytest.mark.django_db]

DAY = datetime.timedelta(days=1)
SIGNATURES = [one.signature for one in functions.functions()]


def ask(sql: str, **params: object) -> list[tuple]:
    return execute(sql, params)


def run_without_functions() -> None:
    for signature in reversed(SIGNATURES):
        ask(f"drop function {signature}")


@pytest.mark.parametrize("one", functions.functions(), ids=lambda one: one.name)
def test_the_function_in_the_database_is_the_one_that_the_code_would_create(one):
    [(body, as_owner, settings, volatile)] = ask(
        "select prosrc, prosecdef, proconfig, provolatile from pg_proc "
        "where oid = to_regprocedure(%(signature)s)",
        signature=one.signature,
    )
    assert body == one.body
    assert not as_owner, "it has the rights of who calls it"
    assert settings == ["search_path=pg_catalog, public, pg_temp", "jit=off"]
    assert volatile == "v", "each of its statements has a snapshot of its own"


def test_the_digest_is_that_of_all_texts(monkeypatch):
    before = functions.digest()
    monkeypatch.setattr(upkeep, "REAP", upkeep.REAP + " ")
    assert functions.digest() == before
    monkeypatch.setattr(upkeep, "REAP", upkeep.REAP.replace("skip locked", "nowait"))
    assert functions.digest() != before


# -------------------------------------------------------------------------------------------- reap


def test_it_records_deaths_and_reaps_every_kind_of_lost_job():
    silent = make_worker(heartbeat_at=AGO, started=None)
    dead = make_worker(died_at=AGO, death="killed", started=[])
    living = make_worker()
    expected = {
        make("running", locked_by=silent.pk).pk: ("pending", True),
        make("running", locked_by=silent.pk, max_attempts=1).pk: ("failed", True),
        make("running", locked_by=silent.pk, cancel_requested_at=AGO).pk: ("cancelled", True),
        make("running", locked_by=dead.pk).pk: ("pending", False),
        make("running", locked_by=4711).pk: ("pending", True),  # of no worker
    }
    kept = make("running", locked_by=living.pk)
    told = ask("select job, status, started from django_pgjobs_reap('60 seconds')")
    assert {job: (status, started) for job, status, started in told} == expected
    assert dict(Job.objects.exclude(pk=kept.pk).values_list("pk", "status")) == {
        job: status for job, (status, _) in expected.items()
    }
    assert row(kept)["status"] == "running"
    silent.refresh_from_db()
    assert silent.died_at
    assert silent.death == "no heartbeat for more than 60 s"
    assert Worker.objects.get(pk=living.pk).died_at is None


def test_an_attempt_that_was_lost_is_put_off_and_noted():
    job = make("running", locked_by=make_worker(heartbeat_at=AGO).pk, attempts=3, claims=3)
    ask("select from django_pgjobs_reap()")
    after = row(job)
    [error] = after["errors"]
    assert (error["error"], error["attempt"]) == ("WorkerLost", 3)
    assert "no heartbeat for more than 60 s" in after["last_error"]
    assert 7 <= (after["run_at"] - connection_time()).total_seconds() <= 9
    assert (after["attempts"], after["claims"]) == (3, 3), "the fence of the next claim is another"


def connection_time() -> datetime.datetime:
    return ask("select statement_timestamp()")[0][0]


def test_lost_attempts_count_among_the_failed_ones():
    for kind in ("a", "b", "a"):
        make("running", kind=kind, locked_by=4711)
    make("running", kind="c", locked_by=make_worker(died_at=AGO, started=[]).pk)
    ask("select from django_pgjobs_reap()")
    counted = Figure.objects.order_by("kind").values_list("queue", "kind", "done", "failed")
    assert list(counted) == [("default", "a", 0, 2), ("default", "b", 0, 1)]


def test_figures_can_be_left_to_the_caller():
    make("running", locked_by=4711)
    ask("select from django_pgjobs_reap(figures => false)")
    assert Job.objects.pending().count() == 1
    assert not Figure.objects.exists()


def test_figures_that_cannot_be_written_hold_up_no_job():
    make("running", locked_by=4711)
    ask("alter table django_pgjobs_figure rename to renamed")
    assert len(ask("select job from django_pgjobs_reap()")) == 1
    assert Job.objects.pending().count() == 1


def test_a_call_takes_one_batch():
    for _ in range(5):
        make("running", locked_by=4711)
    counts = [ask("select count(*) from django_pgjobs_reap(batch => 2)")[0][0] for _ in range(4)]
    assert counts == [2, 2, 1, 0]


@pytest.mark.parametrize("path", ["pg_catalog", "pg_temp", "'none such'"])
def test_they_find_their_tables_whatever_the_search_path_is(path):
    ask("create temporary table django_pgjobs_job (like public.django_pgjobs_job)")
    job = make_in_public(locked_by=4711)
    ask(f"set local search_path = {path}")
    assert ask("select job from public.django_pgjobs_reap()") == [(job,)]
    assert ask("select what from public.django_pgjobs_prune()")


def make_in_public(**columns: object) -> int:
    sql = (
        "insert into public.django_pgjobs_job (kind, status, locked_at, locked_by) "
        "values ('noop', 'running', '2020-01-01', %(locked_by)s) returning id"
    )
    return ask(sql, **columns)[0][0]


def test_they_have_the_rights_of_who_calls_them():
    ask("create role pgjobs_reader; grant usage on schema public to pgjobs_reader")
    make("running", locked_by=4711)
    ask("set local role pgjobs_reader")
    for call in ("record_deaths()", "reap()", "prune()"):
        with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
            ask(f"select from django_pgjobs_{call}")
    ask("reset role; drop owned by pgjobs_reader; drop role pgjobs_reader")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("reap('0')", "older_than must be the age of a heartbeat that means death, got 00:00:00."),
        ("reap('-1 hour')", "older_than must be"),
        ("reap(null)", "got null. Give the LEASE of the workers"),
        ("record_deaths(null)", "older_than must be"),
        ("reap(batch => 0)", "batch must be a number of rows from 1, got 0."),
        ("prune(batch => null)", "batch must be a number of rows from 1, got null."),
    ],
)
def test_a_wrong_argument_is_told_and_changes_nothing(call, told):
    make("running", locked_by=make_worker(heartbeat_at=AGO).pk)
    make("done")
    with pytest.raises(DatabaseError) as refused, transaction.atomic():
        ask(f"select from django_pgjobs_{call}")
    assert told in str(refused.value)
    assert isinstance(refused.value.__cause__, errors.InvalidParameterValue)
    assert Job.objects.running().count() == Job.objects.done().count() == 1
    assert Worker.objects.get().died_at is None


# ------------------------------------------------------------------------------------------- prune


def finished(status: str, days: float) -> Job:
    return make(status, finished_at=connection_time() - days * DAY)


def test_it_deletes_what_is_old_enough_by_its_arguments():
    for status in upkeep.PRUNE:
        for days in (1, 3, 5):
            finished(status, days)
    pending = make("pending", created_at=AGO, run_at=AGO)
    running = make("running", locked_by=make_worker().pk)
    call = "select what, pruned from django_pgjobs_prune('2 days', '4 days', null)"
    told = dict(ask(call))
    assert {status: told[status] for status in upkeep.PRUNE} == {
        "done": 2,
        "failed": 1,
        "cancelled": 0,
    }
    assert [Job.objects.filter(status=s).count() for s in upkeep.PRUNE] == [1, 2, 3]
    assert set(Job.objects.filter(pk__in=[pending.pk, running.pk])) == {pending, running}


def test_its_defaults_are_those_of_the_settings():
    settings = conf.Settings()
    kept = {status: getattr(settings, f"keep_{status}") / 86_400 for status in upkeep.PRUNE}
    younger = [finished(status, days - 0.1) for status, days in kept.items()]
    for status, days in kept.items():
        finished(status, days + 0.1)
    ask("select from django_pgjobs_prune()")
    assert set(Job.objects.all()) == set(younger)


def test_it_deletes_the_oldest_first_and_a_batch_of_each_status():
    jobs = [finished("done", days) for days in (10, 30, 20)]
    finished("failed", 40)
    told = dict(ask("select what, pruned from django_pgjobs_prune(batch => 2)"))
    assert (told["done"], told["failed"]) == (2, 1)
    assert Job.objects.get() == jobs[0]


def test_it_deletes_workers_gates_and_figures_that_nobody_needs():
    old = make_worker(died_at=AGO)
    holding = make_worker(died_at=AGO)
    make("running", locked_by=holding.pk)
    living = make_worker(heartbeat_at=AGO)
    Gate.objects.create(name="old", next_at=AGO)
    Gate.objects.create(name="used", next_at=FUTURE)
    for kind, minute in (("old", AGO), ("new", connection_time())):
        Figure.objects.create(minute=minute, queue="q", kind=kind)
    told = dict(ask("select what, pruned from django_pgjobs_prune()"))
    assert (told["workers"], told["gates"], told["figures"]) == (1, 1, 1)
    assert set(Worker.objects.all()) == {holding, living} != {old}
    assert Gate.objects.get().name == "used"
    assert Figure.objects.get().kind == "new"


# ------------------------------------------------------------------------- Python and the functions


def test_the_reaper_calls_the_functions_and_no_statement_beside_them():
    make("running", locked_by=make_worker(heartbeat_at=AGO).pk)
    finished("done", 8)
    asked = []

    def listen(sql, params):
        asked.append(sql)
        return execute(sql, params)

    assert reaper.run(listen) == (1, 1, 1)
    calls = [functions.RECORD_DEATHS, functions.REAP, functions.PRUNE]
    assert [sql for sql in asked if sql != functions._IS_THERE] == [
        *calls[:2],
        upkeep.ADD_FIGURES,
        calls[2],
    ]


@pytest.mark.parametrize("there", [True, False], ids=["with functions", "without"])
def test_a_pass_does_the_same_with_the_functions_and_without(there, settings):
    settings.PGJOBS = {"KEEP_FAILED": None, "KEEP_DONE": 3 * DAY}
    if not there:
        run_without_functions()
    dead = make_worker(heartbeat_at=AGO)
    lost = [
        make("running", locked_by=dead.pk),
        make("running", locked_by=dead.pk, max_attempts=1),
        make("running", locked_by=dead.pk, cancel_requested_at=AGO),
        make("running", locked_by=make_worker(died_at=connection_time(), started=[]).pk),
        make("running", locked_by=make_worker().pk),
    ]
    for status in upkeep.PRUNE:
        for days in (2, 4, 40):
            finished(status, days)
    Gate.objects.create(name="old", next_at=AGO)
    Figure.objects.create(minute=AGO, queue="q", kind="old")
    make_worker(died_at=AGO)
    assert reaper.run(execute, older_than=60) == (1, 4, 3)
    assert [row(job)["status"] for job in lost] == [
        "pending",
        "failed",
        "cancelled",
        "pending",
        "running",
    ]
    assert [len(row(job)["errors"]) for job in lost] == [1, 1, 1, 0, 0]
    dead.refresh_from_db()
    assert dead.death == "no heartbeat for more than 60 s"
    assert list(Figure.objects.values_list("kind", "failed")) == [("noop", 3)]
    assert not Gate.objects.exists()
    assert Worker.objects.count() == 3
    kept = Job.objects.exclude(pk__in=[job.pk for job in lost])
    assert sorted(kept.values_list("status", flat=True)) == [
        *["cancelled"] * 2,
        "done",
        *["failed"] * 3,
    ]


@pytest.mark.django_db(transaction=True)
def test_the_migration_can_be_reversed_and_maintenance_goes_on():
    dead = make_worker(heartbeat_at=AGO)
    first, second = (make("running", locked_by=dead.pk) for _ in range(2))
    try:
        call_command("migrate", "django_pgjobs", "0001_initial", verbosity=0)
        assert not functions.are_there(execute)
        assert reaper.run(execute, older_than=60, prune=True)[:2] == (1, 2)
    finally:
        call_command("migrate", "django_pgjobs", verbosity=0)
    assert functions.are_there(execute)
    Job.objects.filter(pk=second.pk).update(status="running", locked_by=dead.pk, locked_at=AGO)
    assert reaper.run(execute, older_than=60, prune=True)[:2] == (0, 1)
    assert row(first)["status"] == row(second)["status"] == "pending"


def test_a_role_that_may_not_call_them_does_without():
    for signature in SIGNATURES:
        ask(f"revoke execute on function {signature} from public")
    ask("create role pgjobs_worker; grant all on all tables in schema public to pgjobs_worker")
    make("running", locked_by=make_worker(heartbeat_at=AGO).pk)
    ask("set local role pgjobs_worker")
    assert reaper.run(execute, older_than=60)[:2] == (1, 1)
    ask("reset role; drop owned by pgjobs_worker; drop role pgjobs_worker")


def test_what_sqlmigrate_prints_creates_them(capsys):
    run_without_functions()
    call_command("sqlmigrate", "django_pgjobs", functions.MIGRATION)
    with connection.cursor() as cursor:
        cursor.execute(capsys.readouterr().out.replace("BEGIN;", "").replace("COMMIT;", ""))
    assert functions.are_there(execute)
