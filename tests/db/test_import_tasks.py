"""`pgjobs import-tasks`: what waits in django-tasks-db becomes jobs, once, and nothing else does."""

from __future__ import annotations

import datetime
import json
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest
from django.apps import apps
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import JSONField, Value

from django_pgjobs import task_rows
from django_pgjobs.models import Job
from django_pgjobs.testing import drain
from tests.contract import pages
from tests.db import rows

pytestmark = [
    pytest.mark.django_db(databases=["default", "other"]),
    pytest.mark.skipif(
        find_spec("django_pgjobs.tasks") is None, reason="there is no backend for tasks"
    ),
]

AT_ONCE = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)
ADD = "tests.app.tasks.add_up"
TABLE = "django_tasks_database_dbtaskresult"


def old_rows():
    return apps.get_model("django_tasks_database", "DBTaskResult").objects


def make(path=ADD, *args, status="READY", run_after=AT_ONCE, kwargs=None, **columns):
    """A row as django-tasks-db writes it."""
    given = {"args": list(args), "kwargs": kwargs or {}}
    columns = {"backend_name": "default", **columns}
    return old_rows().create(
        task_path=path, args_kwargs=given, status=status, run_after=run_after, **columns
    )


def run(*arguments, capsys, status=0):
    if status:
        with pytest.raises(SystemExit) as ended:
            call_command("pgjobs", "import-tasks", "--json", *arguments)
        assert ended.value.code == status
    else:
        call_command("pgjobs", "import-tasks", "--json", *arguments)
    return json.loads(capsys.readouterr().out)


def test_what_waits_becomes_jobs_as_it_was_enqueued(capsys):
    make(ADD, 1, kwargs={"b": 2})
    make(ADD, 3, priority=7, queue_name="mail", run_after=rows.FUTURE)
    make(ADD, 5, run_after=rows.AGO)
    make("tests.app.tasks.collect", 1, [2], kwargs={"k": {"x": None}})
    told = run(capsys=capsys)
    assert [len(told["carried"]), told["left"], told["held"]] == [4, [], 0]
    assert not old_rows().exists()
    jobs = Job.objects.order_by("id")
    assert [(job.priority, job.queue) for job in jobs] == [(7, "mail"), *[(0, "default")] * 3]
    assert jobs[0].run_at == rows.FUTURE
    assert jobs[1].run_at == rows.AGO
    assert [str(job.pk) for job in jobs] == [one["job"] for one in told["carried"]]
    drain()
    assert list(Job.objects.done().order_by("id").values_list("result", flat=True)) == [
        5,
        3,
        [[1, [2]], {"k": {"x": None}}],
    ]


def test_jobs_come_in_the_order_in_which_old_workers_would_have_taken_them(monkeypatch, capsys):
    monkeypatch.setattr(task_rows, "_BATCH", 2)
    numbers = [(0, 1), (5, 2), (0, 3), (-5, 4), (5, 5)]
    for priority, n in numbers:
        make(ADD, n, priority=priority)
    run(capsys=capsys)
    drain()
    ended = Job.objects.order_by("finished_at", "attempted_at")
    assert [job.result for job in ended] == [2, 5, 1, 3, 4]


def test_what_is_running_or_finished_is_left_alone_and_once_is_enough(capsys):
    for status in ("RUNNING", "SUCCESSFUL", "FAILED"):
        make(ADD, 1, status=status)
    make(ADD, 1)
    assert len(run(capsys=capsys)["carried"]) == 1
    assert run(capsys=capsys)["carried"] == []
    assert Job.objects.count() == 1
    assert old_rows().count() == 3


def test_a_dry_run_says_the_same_and_changes_nothing(capsys):
    one = make(ADD, 1)
    make("os.system", "true")
    told = run("--dry-run", capsys=capsys, status=1)
    assert told["carried"] == [{"row": str(one.pk), "job": None}]
    assert [left["task"] for left in told["left"]] == ["os.system"]
    assert not Job.objects.exists()
    assert old_rows().filter(status="READY").count() == 2


REFUSED = {
    "outside the installed apps": ("os.system", ["true"], {}),
    "no task": ("tests.app.jobs.os", [], {}),
    "gone": ("tests.app.tasks.gone", [], {}),
    "no path": ("", [], {}),
    "arguments that do not fit": (ADD, [1, 2, 3], {}),
    "too large": (ADD, ["x" * 200_000], {}),
    "a queue of no name": (ADD, [1], {"queue_name": "a b"}),
    "an unknown backend": (ADD, [1], {"backend_name": "nowhere"}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_carried_over_stays_with_its_reason(why, capsys):
    path, args, columns = REFUSED[why]
    pair = [make(path, *args, **columns) for _ in range(2)]
    make(ADD, 1)
    told = run(capsys=capsys, status=1)
    assert len(told["carried"]) == Job.objects.count() == 1
    [left] = told["left"]
    assert (left["task"], left["rows"], left["example"]) == (path, 2, str(pair[0].pk))
    assert left["reason"]
    assert old_rows().filter(status="READY").count() == 2


def test_nothing_outside_the_installed_apps_is_imported_because_a_row_says_so(capsys):
    assert "this" not in sys.modules
    make("this.d", "x")
    assert len(run(capsys=capsys, status=1)["left"]) == 1
    assert "this" not in sys.modules


def test_what_the_server_refuses_for_one_row_leaves_the_others_alone(monkeypatch, capsys):
    real = task_rows._enqueue

    def enqueue(row, backend):
        if row.args_kwargs["args"] == [13]:
            with connection.cursor() as cursor:  # as a receiver of signals may
                cursor.execute("select 1 / 0")
        return real(row, backend)

    monkeypatch.setattr(task_rows, "_enqueue", enqueue)
    for n in (12, 13, 14):
        make(ADD, n)
    told = run(capsys=capsys, status=1)
    assert len(told["carried"]) == Job.objects.count() == 2
    assert "division by zero" in told["left"][0]["reason"]


def test_the_text_names_tasks_and_reasons(capsys):
    left = make("os.system", "true")
    make(ADD, 1)
    with pytest.raises(SystemExit):
        call_command("pgjobs", "import-tasks")
    told = capsys.readouterr().out
    assert told.startswith("Carried over 1 task, as 1 job.\n")
    assert f"1 row of 'os.system', as {left.pk}: task_path must be that of a task in an" in told


def test_each_reason_of_one_task_stands_with_its_rows(capsys):
    named = {make(ADD, 1, backend_name=name).pk: name for name in ("one", "two")}
    with pytest.raises(SystemExit):
        call_command("pgjobs", "import-tasks")
    told = capsys.readouterr().out
    for pk, name in named.items():
        assert f"as {pk}: The backend of a task must be a key of TASKS, got {name!r}. Add" in told


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_tasks_that_become_one_job_count_as_one(dry, capsys):
    for _ in range(3):
        make("tests.app.tasks.once_at_a_time", 1)
    make(ADD, 1)
    told = run(*dry, capsys=capsys)
    assert (len(told["carried"]), told["jobs"]) == (4, 2)


def test_statuses_that_are_not_known_are_told_and_are_no_success(capsys):
    for status in ("RUNNING", "SUCCESSFUL", "FAILED", "NEW", "NEW", "ODD"):
        make(ADD, 1, status=status)
    told = run(capsys=capsys, status=1)
    assert told["unknown"] == [{"status": "NEW", "rows": 2}, {"status": "ODD", "rows": 1}]
    with pytest.raises(SystemExit):
        call_command("pgjobs", "import-tasks")
    assert "got 'NEW' in 2 rows, which stay" in capsys.readouterr().out
    assert old_rows().count() == 6


def test_a_backend_that_cannot_be_meant_is_refused_though_nothing_waits():
    with pytest.raises(CommandError, match="must be a key of TASKS, got 'nope'") as caught:
        call_command("pgjobs", "import-tasks", "--backend", "nope")
    assert caught.value.returncode == 2


@pytest.mark.parametrize(
    "given", [[1, 2], {}, {"args": 1, "kwargs": {}}, {"args": [], "kwargs": []}, None], ids=repr
)
def test_what_is_no_arguments_stays_with_advice(given, capsys):
    old_rows().filter(pk=make(ADD, 1).pk).update(args_kwargs=Value(given, JSONField()))
    [left] = run(capsys=capsys, status=1)["left"]
    assert left["reason"].startswith("args_kwargs must be an object with the list 'args' and")
    assert left["reason"].endswith("Correct it, or delete these rows.")


def test_rows_of_another_framework_s_backend_need_one_to_be_named(settings, capsys):
    base = import_module("django_pgjobs.tasks.framework").BaseTaskBackend.__module__
    dummy = {"BACKEND": base.replace("base", "dummy") + ".DummyBackend"}
    settings.TASKS = {**settings.TASKS, "old": dummy}
    make(ADD, 1, backend_name="old")
    [left] = run(capsys=capsys, status=1)["left"]
    assert "must be django_pgjobs.tasks.PgJobsBackend, got DummyBackend" in left["reason"]
    assert len(run("--backend", "second", capsys=capsys)["carried"]) == 1
    assert Job.objects.get().meta["task"]["backend"] == "second"


def test_batches_carry_all(monkeypatch, capsys):
    monkeypatch.setattr(task_rows, "_BATCH", 3)
    for n in range(10):
        make(ADD, n)
    make("os.system")
    assert len(run(capsys=capsys, status=1)["carried"]) == 10


class JobsElsewhere:
    def db_for_write(self, model, **hints):
        return "other" if model is Job else None


@pytest.mark.parametrize("options", [(), ("--database", "default"), ("--database", "other")])
def test_the_tasks_must_be_in_the_database_of_the_jobs(settings, options):
    settings.DATABASE_ROUTERS = [JobsElsewhere()]
    make(ADD, 1)
    with pytest.raises(CommandError, match="the database of the jobs, 'other', got 'default'"):
        call_command("pgjobs", "import-tasks", *options)
    assert old_rows().count() == 1


def test_the_app_must_be_installed(monkeypatch):
    monkeypatch.setattr(task_rows, "_LABEL", "nowhere")
    with pytest.raises(CommandError, match="django_tasks_db must be in INSTALLED_APPS"):
        call_command("pgjobs", "import-tasks")


# --------------------------------------------------------------------------------------- the guide


def test_the_sql_of_the_guide_leaves_nothing_of_the_old_app():
    recorder = MigrationRecorder(connection)
    recorder.record_applied("django_tasks_database", "0013_separate_exception_fields")
    others = {app for app, _ in recorder.applied_migrations()} - {"django_tasks_database"}
    [block] = [
        block
        for block in pages.blocks("docs/how-to/migrate-from-django-tasks-db.md")
        if block.language == "sql"
    ]
    with connection.cursor() as cursor:
        cursor.execute(block.code)
    assert TABLE not in connection.introspection.table_names()
    assert {app for app, _ in recorder.applied_migrations()} == others


# ------------------------------------------------------------------------------- beside old workers


@pytest.mark.django_db(transaction=True)
def test_a_row_that_an_old_worker_takes_at_this_moment_is_its_own(other_session, capsys):
    mine, other = make(ADD, 1), make(ADD, 2)
    other_session.execute(f"select from {TABLE} where id = %s for update", [mine.pk])
    told = run(capsys=capsys)
    assert ([one["row"] for one in told["carried"]], told["held"]) == ([str(other.pk)], 1)
    other_session.execute(f"update {TABLE} set status = 'RUNNING' where id = %s", [mine.pk])  # noqa: S608
    other_session.commit()
    assert run(capsys=capsys)["carried"] == []
    assert old_rows().get().pk == mine.pk


@pytest.mark.django_db(transaction=True)
def test_no_old_worker_takes_what_is_being_carried_over(other_session, monkeypatch, capsys):
    make(ADD, 1), make(ADD, 2)
    real, taken = task_rows._enqueue, []

    def enqueue(row, backend):
        # As db_worker asks for its next one.
        ready = f"select id from {TABLE} where status = 'READY' for update skip locked limit 1"  # noqa: S608
        taken.extend(other_session.execute(ready).fetchall())
        other_session.rollback()
        return real(row, backend)

    monkeypatch.setattr(task_rows, "_enqueue", enqueue)
    assert len(run(capsys=capsys)["carried"]) == 2
    assert taken == []


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_lost_half_way_leaves_each_task_in_one_table(monkeypatch):
    for n in range(4):
        make(ADD, n)
    real, calls = task_rows._enqueue, []

    def enqueue(row, backend):
        calls.append(row)
        if len(calls) == 4:
            raise OperationalError("server closed the connection")
        return real(row, backend)

    monkeypatch.setattr(task_rows, "_enqueue", enqueue)
    monkeypatch.setattr(task_rows, "_BATCH", 2)
    with pytest.raises(CommandError, match="cannot be asked: server closed"):
        call_command("pgjobs", "import-tasks")
    assert Job.objects.count() == 2
    assert old_rows().count() == 2
