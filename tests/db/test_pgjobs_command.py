"""`manage.py pgjobs`: every verb, as text and as JSON, with its exit status."""

from __future__ import annotations

import getpass
import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from django_pgjobs import doctor, windows
from django_pgjobs.doctor import LOOKS
from django_pgjobs.management import acting, answers
from django_pgjobs.management.commands.pgjobs import VERBS
from django_pgjobs.masking import MASK
from django_pgjobs.models import Job, Queue
from tests.app.jobs import noop
from tests.db import rows

pytestmark = pytest.mark.django_db


def run(*arguments, status: int = 0) -> str:
    """Run the command, which must exit with this status, and return what it printed."""
    out, exited = StringIO(), 0
    try:
        call_command("pgjobs", *map(str, arguments), stdout=out)
    except SystemExit as error:
        exited = error.code
    assert exited == status, out.getvalue()
    return out.getvalue()


def asked(*arguments, status: int = 0):
    return json.loads(run(*arguments, "--json", status=status))


def refused(*arguments) -> CommandError:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    return caught.value


def many_kinds_of_jobs() -> None:
    for status in rows.STATUSES:
        if status != "blocked":
            rows.make(status)
    rows.make(kind="gone", queue="mail", payload={"a": 1}, last_error="x\ny")
    rows.make_worker(queues=["default"])


FORMS = {
    "stats": (),
    "list": (),
    "show": ("ID",),
    "explain": ("ID",),
    "retry": ("--status", "failed"),
    "cancel": ("--kind", "gone"),
    "pause": ("mail",),
    "resume": ("other",),
    "check": (),
    "doctor": (),
    "grants": ("--producer", "web"),
    "import-tasks": (),
}
KEYS = {
    "stats": ["queues", "workers"],
    "list": ["jobs", "more", "windowed"],
    "explain": ["id", "answer", "text", "facts"],
    "retry": ["done", "skipped"],
    "cancel": ["done", "skipped"],
    "pause": ["queue", "changed"],
    "resume": ["queue", "changed"],
    "check": ["misfits"],
    "doctor": ["severity", "findings"],
    "grants": ["statements"],
    "import-tasks": ["dry_run", "carried", "jobs", "left", "held", "unknown"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_speaks_to_people_and_to_programs(verb):
    many_kinds_of_jobs()
    ids = {"ID": Job.objects.latest("id").pk}
    arguments = [ids.get(word, word) for word in FORMS[verb]]
    status = 1 if verb in ("check", "doctor") else 0
    with connection.cursor() as cursor:
        cursor.execute("savepoint before")
        text = run(verb, *arguments, status=status)
        cursor.execute("rollback to before")
    data = asked(verb, *arguments, status=status)
    assert text.strip()
    assert all(line == line.rstrip() for line in text.splitlines())
    expected = KEYS.get(verb) or [field.attname for field in Job._meta.concrete_fields]
    assert list(data) == expected


def test_stats_say_what_is_in_the_queues():
    rows.make(run_at=rows.AGO)
    rows.make(run_at=rows.FUTURE)
    rows.make("running")
    Queue.objects.create(name="mail", paused_at=rows.AGO, paused_by="ada")
    rows.make_worker()
    rows.make_worker(stopping_at=rows.AGO)
    data = asked("stats")
    queues = {one["queue"]: one for one in data["queues"]}
    assert [queues["default"][name] for name in ("due", "delayed", "running")] == [1, 1, 1]
    assert queues["default"]["oldest_due_seconds"] > 86_400
    assert queues["mail"]["paused_by"] == "ada"
    assert data["workers"] == {"living": 1, "stopping": 1, "silent": 0}
    text = run("stats")
    assert "1 living, 1 stopping, 0 silent" in text
    assert text.splitlines()[0].split()[:4] == ["QUEUE", "DUE", "DELAYED", "RUNNING"]


def listed(*arguments):
    return [one["id"] for one in asked("list", *arguments)["jobs"]]


def test_the_list_is_chosen_by_status_queue_and_kind():
    a = rows.make(kind="a", queue="q")
    b = rows.make("failed", kind="b", queue="q", last_error="first line\nsecond")
    c = rows.make(kind="a", priority=3, concurrency_key="k")
    assert listed() == [c.pk, b.pk, a.pk]
    assert listed("--status", "failed") == [b.pk]
    assert listed("--queue", "q") == [b.pk, a.pk]
    assert listed("--kind", "a", "--status", "pending") == [c.pk, a.pk]
    assert asked("list", "--limit", "2")["more"]
    assert not asked("list", "--limit", "3")["more"]
    text = run("list", "--limit", "2")
    assert "first line" in text
    assert "second" not in text
    assert "There are more" in text


def test_the_list_looks_no_further_than_the_window(monkeypatch):
    monkeypatch.setattr(windows, "WINDOW", 3)
    for n in range(5):
        rows.make("done", kind="a" if n else "b")
    assert listed("--kind", "b") == []
    assert "jobs were looked at, no more" in run("list", "--kind", "b")


def test_show_masks_secrets_and_shows_all_else():
    job = rows.make(
        "failed",
        payload={"password": "canary", "order_id": 7},
        errors=[{"attempt": 1, "message": "no stock", "traceback": "a\nb"}],
        meta={"api_key": "canary"},
    )
    data = asked("show", job.pk)
    assert data["payload"] == {"password": MASK, "order_id": 7}
    assert data["errors"][0]["message"] == "no stock"
    assert data["status"] == "failed"
    text = run("show", job.pk)
    assert "canary" not in text
    assert "no stock" in text


def test_what_a_row_holds_cannot_command_a_terminal():
    job = rows.make(kind="a\x1b[2J\u202eb", queue="q\x9b", last_error="\x1b]0;x\x07")
    printed = run("show", job.pk) + run("list") + run("stats") + run("check", status=1)
    printed += run("explain", job.pk) + run("list", "--json") + run("show", job.pk, "--json")
    assert not any(c in printed for c in "\x1b\x9b\x07\u202e")
    assert "\\x1b[2J" in printed


@pytest.mark.parametrize("verb", ["show", "explain"])
def test_a_job_that_is_not_there(verb):
    error = refused(verb, 10**9)
    assert error.returncode == 1
    assert str(error) == f"ID must be that of a job, got {10**9}: there is none."
    assert asked(verb, 10**9, status=1) == {
        "id": 10**9,
        "answer": "gone",
        "text": "There is no such job any more.",
        "facts": {},
    }


def test_in_json_what_is_not_there_is_null():
    job = rows.make()
    Queue.objects.create(name="mail", paused_at=rows.AGO)
    [mail] = [one for one in asked("stats")["queues"] if one["queue"] == "mail"]
    assert mail["paused_at"] is not None
    assert mail["paused_by"] is None
    assert asked("list")["jobs"][0]["last_error"] is None
    assert asked("show", job.pk)["last_error"] is None


def test_explain_says_what_the_job_says():
    job = rows.make()
    data = asked("explain", job.pk)
    assert data["answer"] == "unserved"
    assert data["text"] in run("explain", job.pk)
    assert data["facts"] == {"queue": "default", "living": 0}


# ------------------------------------------------------------------------------------------- acts


def test_named_jobs_are_retried_and_the_others_counted():
    failed, cancelled, done = (rows.make(s) for s in ("failed", "cancelled", "done"))
    ids = [failed.pk, cancelled.pk, done.pk, 10**9]
    text = run("retry", *ids)
    assert "Retried 2 jobs. Skipped 2: not failed or cancelled, not there" in text
    assert set(Job.objects.pending().values_list("pk", flat=True)) == {failed.pk, cancelled.pk}
    assert asked("retry", *ids, status=1) == {"done": 0, "skipped": 4}


def test_a_filter_retries_failed_jobs_unless_it_says_cancelled():
    for status in ("failed", "cancelled", "done", "pending"):
        rows.make(status, kind="a")
        rows.make(status, kind="b")
    assert asked("retry", "--kind", "a") == {"done": 1, "skipped": 0}
    assert asked("retry", "--status", "cancelled", "--kind", "a") == {"done": 1, "skipped": 0}
    assert asked("retry", "--all") == {"done": 1, "skipped": 0}
    assert asked("retry", "--all", status=1) == {"done": 0, "skipped": 0}
    assert Job.objects.cancelled().count() == 1


def test_cancel_reaches_pending_and_running_jobs():
    pending, running, done = (rows.make(s) for s in ("pending", "running", "done"))
    assert asked("cancel", "--queue", "default") == {"done": 2, "skipped": 0}
    assert asked("cancel", done.pk, status=1) == {"done": 0, "skipped": 1}
    assert Job.objects.cancelled().get() == pending
    assert Job.objects.get(pk=running.pk).cancel_requested_at


@pytest.mark.parametrize("verb", ["retry", "cancel"])
def test_acts_must_be_told_on_what(verb):
    job = rows.make("failed" if verb == "retry" else "pending")
    before = rows.row(job)
    for arguments in ((), ("--all", "--kind", "a"), ("--all", job.pk)):
        assert refused(verb, *arguments).returncode == 2
    assert rows.row(job) == before


@pytest.mark.parametrize(
    ("verb", "status", "those"),
    [
        ("retry", "pending", "cancelled or failed"),
        ("retry", "running", "cancelled or failed"),
        ("retry", "done", "cancelled or failed"),
        ("cancel", "done", "pending or running"),
        ("cancel", "failed", "pending or running"),
        ("cancel", "cancelled", "pending or running"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_a_status_that_an_act_cannot_change_is_wrong_usage(verb, status, those, named):
    job = rows.make(status)
    error = refused(verb, *[job.pk] * named, "--status", status)
    assert error.returncode == 2
    assert str(error).startswith(f"--status must be {those} for {verb}, got {status!r}. ")


@pytest.mark.parametrize("option", ["--queue", "--kind"])
@pytest.mark.parametrize("others", [(), ("--all",), ("--status", "pending"), ("ID",)], ids="".join)
def test_an_empty_filter_does_not_mean_all(option, others):
    job = rows.make()
    others = [job.pk if other == "ID" else other for other in others]
    assert "must not be empty" in str(refused("cancel", option, "", *others))
    assert "must not be empty" in str(refused("list", option, ""))
    assert Job.objects.pending().get() == job


def test_python_may_name_the_filters_and_an_empty_one_chooses_no_job():
    job = rows.make()
    with pytest.raises(SystemExit):
        call_command("pgjobs", "cancel", "--status", "pending", queue="", stdout=StringIO())
    assert Job.objects.pending().get() == job


@pytest.mark.parametrize(
    "arguments", [("list", "--queue"), ("cancel", "--kind"), ("pause",), ("resume",)], ids=" ".join
)
def test_bytes_that_are_no_text_are_wrong_usage(arguments):
    assert "must be UTF-8, got '\\udcff'" in str(refused(*arguments, "\udcff"))


def test_an_id_and_a_filter_must_both_fit():
    job = rows.make("failed", kind="a")
    assert asked("retry", job.pk, "--kind", "b", status=1) == {"done": 0, "skipped": 1}
    assert asked("retry", job.pk, "--kind", "a") == {"done": 1, "skipped": 0}


def test_a_pause_names_who_and_is_left_alone_the_second_time(monkeypatch):
    assert asked("pause", "mail") == {"queue": "mail", "changed": True}
    first = Queue.objects.get()
    assert first.paused_at
    assert first.paused_by.startswith(f"{getpass.getuser()}@")
    assert "was paused already" in run("pause", "mail")
    assert Queue.objects.get().paused_at == first.paused_at
    assert "goes on" in run("resume", "mail")
    assert Queue.objects.get().paused_at is None
    assert "was not paused" in run("resume", "mail")
    assert refused("pause", "").returncode == 2

    def unnamed():
        raise KeyError(1)

    monkeypatch.setattr(acting.getpass, "getuser", unnamed)
    run("pause", "mail")
    assert Queue.objects.get().paused_by.startswith("uid ")


# ----------------------------------------------------------------------------------- examinations


def test_check_fails_where_waiting_jobs_have_no_code():
    noop.enqueue()
    assert "can run every waiting job" in run("check")
    assert asked("check") == {"misfits": []}
    lost = rows.make(kind="gone")
    text = run("check", status=1)
    assert "unknown kind" in text
    [one] = asked("check", status=1)["misfits"]
    assert list(one) == ["kind", "problem", "jobs", "example", "text"]
    assert one["example"] == lost.pk


def test_doctor_exits_by_severity():
    assert asked("doctor")["severity"] == "ok"
    rows.make_worker(died_at=rows.FUTURE, death="signal 9")
    assert asked("doctor")["severity"] == "warning"
    run("doctor", "--fail-level", "warning", status=1)
    rows.make(kind="gone")
    data = asked("doctor", status=1)
    assert data["severity"] == "error"
    assert {one["check"] for one in data["findings"]} == set(LOOKS)
    assert list(data["findings"][0]) == list(doctor.Finding._fields)
    assert "ERROR    kinds: No code takes 1 waiting job of the kind 'gone'" in run(
        "doctor", status=1
    )


# ---------------------------------------------------------------------------------------- manners


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("what",),
        ("show",),
        ("show", "x"),
        ("show", "0"),
        ("list", "--status", "blocked"),
        ("list", "--limit", "0"),
        ("pause",),
        ("stats", "--database", "nowhere"),
        ("doctor", "--fail-level", "info"),
    ],
    ids=" ".join,
)
def test_wrong_usage(arguments):
    error = refused(*arguments)
    assert error.returncode in (1, 2)  # the parser exits with 2 where it is called from a shell


def test_it_speaks_english_whatever_the_language():
    job = rows.make("done")
    with translation.override("de"):
        assert "It is done" in run("explain", job.pk)
        assert translation.get_language() == "de"


@pytest.mark.parametrize("verb", ["stats", "list", "show", "explain"])
def test_questions_change_nothing(verb):
    many_kinds_of_jobs()
    ids = {"ID": Job.objects.latest("id").pk}
    with CaptureQueriesContext(connection) as queries:
        run(verb, *[ids.get(word, word) for word in FORMS[verb]])
    begun = {query["sql"].split()[0].lower() for query in queries}
    assert begun <= {"select", "with", "savepoint", "rollback", "release"}


@pytest.mark.django_db(databases=["default", "other"])
def test_the_database_can_be_named():
    Job.objects.using("other").create(kind="elsewhere")
    assert [one["kind"] for one in asked("list", "--database", "other")["jobs"]] == ["elsewhere"]
    assert listed() == []
    run("pause", "mail", "--database", "other")
    assert Queue.objects.using("other").get().name == "mail"
    assert asked("doctor", "--database", "other", status=1)["severity"] == "error"
    assert connections["other"].vendor == "postgresql"


def test_a_table_lines_up():
    text = answers.table(("id", "kind"), [(1, "a"), (10, None), (100, "x" * 90)])
    assert text.splitlines()[:3] == [" ID  KIND", "  1  a", " 10  -"]
    assert len(text.splitlines()[3]) == 65
    assert answers.table(("id",), []) == "ID"
