"""`manage.py pgmq`: every verb, as text and as JSON, with its exit status."""

from __future__ import annotations

import datetime
import io
import json
import sys

import pytest
from django.core.management import CommandError, call_command, get_commands
from django.db import connection, transaction
from django.utils import timezone

from django_pgjobs.management.messages import VERBS
from django_pgjobs.masking import MASK
from django_pgjobs.pgmq import DeadLetters, Queue, peeks


@pytest.fixture
def dead(queue):
    Queue("emails_dead").create()
    return DeadLetters("emails_dead")


def bury(queue, dead, *bodies, reason="It bounced."):
    queue.send_batch(bodies)
    return [dead.bury(queue, message, reason) for message in queue.read(qty=len(bodies))]


def run(*arguments, status: int = 0) -> str:
    """Run the command, which must exit with this status, and return what it printed."""
    out, exited = io.StringIO(), 0
    try:
        call_command("pgmq", *map(str, arguments), stdout=out)
    except SystemExit as error:
        exited = error.code
    assert exited == status, out.getvalue()
    return out.getvalue()


def asked(*arguments, status: int = 0):
    return json.loads(run(*arguments, "--json", status=status))


def refused(*arguments) -> CommandError:
    with pytest.raises(CommandError) as caught, transaction.atomic():
        run(*arguments)
    return caught.value


@pytest.fixture
def say(monkeypatch):
    """Return what types an answer to a question, and tells the question."""

    def type_(text: str) -> io.StringIO:
        prompt = io.StringIO()
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        monkeypatch.setattr(sys, "stderr", prompt)
        return prompt

    return type_


def test_the_command_is_that_of_the_app_alone():
    assert get_commands()["pgmq"] == "django_pgjobs.pgmq"


def test_metrics_say_what_is_in_the_queues(queue, dead):
    queue.send_batch([1, 2], delay=timezone.now() - datetime.timedelta(hours=1))
    queue.send(3, delay=60)
    queue.archive(queue.read())

    found = {one["queue"]: one for one in asked("metrics")["queues"]}

    assert list(found) == ["emails", "emails_dead"]
    emails = found["emails"]
    assert [emails[name] for name in ("length", "visible", "total")] == [2, 1, 3]
    assert emails["oldest_age"] >= 0
    assert emails["archive_bytes"] > 0
    assert found["emails_dead"]["oldest_age"] is None
    [line] = run("metrics", "emails").splitlines()[1:]
    assert line.split()[:3] == ["emails", "2", "1"]


def test_a_queue_whose_table_is_gone_does_not_hide_the_others(queue, dead):
    queue.send(1)
    with connection.cursor() as cursor:
        cursor.execute("drop table pgmq.q_emails_dead")

    found = {one["queue"]: one["length"] for one in asked("metrics")["queues"]}

    assert found == {"emails": 1, "emails_dead": None}
    assert "?" in run("metrics")


def test_the_archive_of_a_queue_is_measured_with_its_parts(queue):
    with connection.cursor() as cursor:
        cursor.execute(
            "drop table pgmq.a_emails;"
            "create table pgmq.a_emails (n int) partition by range (n);"
            "create table pgmq.a_emails_p1 partition of pgmq.a_emails for values from (0) to (9);"
            "insert into pgmq.a_emails values (1)"
        )
    [found] = peeks.figures(queue="emails")
    assert found.archive_bytes == 8_192


def test_a_list_shows_dead_letters_and_reads_none(queue, dead):
    ids = bury(queue, dead, {"to": "ada", "password": "hunter2"}, [2])
    dead.queue.send("put here by hand")

    data = asked("list", "emails_dead")
    text = run("list", "emails_dead")

    assert [one["id"] for one in data["messages"]][:2] == ids
    assert [one["comes_from"] for one in data["messages"]] == ["emails", "emails", None]
    assert [one["reason"] for one in data["messages"]] == ["It bounced.", "It bounced.", None]
    assert data["messages"][0]["message"] == {"to": "ada", "password": MASK}
    assert "hunter2" not in text + json.dumps(data)
    assert "It bounced." in text
    assert [message.read_ct for message in dead.queue.read(qty=3)] == [1, 1, 1]


def test_a_list_goes_on_behind_the_last(queue):
    ids = queue.send_batch(range(5))

    first = asked("list", "emails", "--limit", 2)
    second = asked("list", "emails", "--limit", 3, "--after", ids[1])

    assert [one["id"] for one in first["messages"] + second["messages"]] == ids
    assert (first["more"], second["more"]) == (True, False)
    assert f"See them with --after {ids[1]}." in run("list", "emails", "--limit", 2)


def test_what_is_too_large_stays_in_the_server(queue, monkeypatch):
    monkeypatch.setattr(peeks, "IN_A_PAGE", 1_000)
    monkeypatch.setattr(peeks, "ALONE", 3_000)
    with connection.cursor() as cursor:  # one that is small as it is stored, and one that is not
        cursor.execute("select pgmq.send('emails', to_jsonb(repeat('x', 2000)))")
        cursor.execute(
            "select pgmq.send('emails', to_jsonb(string_agg(md5(n::text), ''))) "
            "from generate_series(1, 1000) as n"
        )

    small, large = asked("list", "emails")["messages"]

    assert [(one["message"], one["is_whole"]) for one in (small, large)] == [(None, False)] * 2
    assert large["size"] > 30_000
    assert "too large" in run("list", "emails")
    assert asked("show", "emails", small["id"])["message"] == "x" * 2_000
    assert asked("show", "emails", large["id"])["message"] is None


def test_one_is_shown_with_secrets_masked(queue):
    message_id = queue.send({"a": {"token": "hunter2"}}, headers={"api_key": "hunter2", "n": 1})

    data = asked("show", "emails", message_id)

    assert (data["message"], data["headers"]) == ({"a": {"token": MASK}}, {"api_key": MASK, "n": 1})
    assert "hunter2" not in run("show", "emails", message_id)


def test_one_that_is_not_there_is_told(queue):
    assert asked("show", "emails", 7, status=1)["answer"] == "gone"
    assert "got 7: there is none." in str(refused("show", "emails", 7))


@pytest.mark.parametrize("number", ["9" * 5_000, "1e400"])
def test_numbers_that_python_cannot_read_are_shown(queue, number):
    with connection.cursor() as cursor:
        cursor.execute(f"select pgmq.send('emails', '{number}'::jsonb)")
    assert run("list", "emails")
    assert asked("list", "emails")["messages"]


def test_what_a_terminal_would_obey_is_not_printed(queue, dead):
    bury(queue, dead, {"\x1b[31m": "\u202e"}, reason="\x1b]0;x\x07\nsecond line")
    text = run("list", "emails_dead") + run("show", "emails_dead", 1)
    assert all(line.isprintable() for line in text.splitlines())


def test_all_are_driven_back_and_what_cannot_be_is_counted(queue, dead):
    bury(queue, dead, 1, 2)
    dead.queue.send("put here by hand")

    assert asked("redrive", "emails_dead") == {"done": 2, "skipped": 1}

    assert [message.message for message in queue.read(qty=5)] == [1, 2]
    assert "Redrove 0 messages. Skipped 1: not there" in run("redrive", "emails_dead", status=1)


def test_some_are_driven_into_another_queue(queue, dead):
    Queue("quarantine").create()
    first, second, third = bury(queue, dead, 1, 2, 3)

    chosen = ("--ids", f"{first}, {third},999", "--to", "quarantine")
    assert asked("redrive", "emails_dead", *chosen) == {"done": 2, "skipped": 1}

    assert [message.message for message in Queue("quarantine").read(qty=5)] == [1, 3]
    assert [letter.id for letter in dead.peek()] == [second]


def test_the_oldest_go_first_and_what_has_nowhere_to_go_takes_no_place(queue, dead):
    dead.queue.send("put here by hand")
    bury(queue, dead, 1, 2, 3)

    assert asked("redrive", "emails_dead", "--limit", 2) == {"done": 2, "skipped": 0}

    assert [message.message for message in queue.read(qty=5)] == [1, 2]
    assert [letter.message for letter in dead.peek()] == ["put here by hand", 3]


@pytest.mark.parametrize("rate", ["0.01", "0.01/s"])
def test_at_a_rate_they_are_seen_one_after_the_other(queue, dead, rate):
    bury(queue, dead, 1, 2, 3)

    run("redrive", "emails_dead", "--rate", rate)

    waits = [round(one.vt.timestamp() - one.enqueued_at.timestamp()) for one in queue_of(queue)]
    assert [later - waits[0] for later in waits] == [0, 100, 200]


def queue_of(queue):
    return peeks.page(queue, 10)[0]


def test_a_purge_asks_first(queue, say):
    queue.send_batch([1, 2])

    prompt = say("no\n")
    assert str(refused("purge", "emails")) == "Nothing was deleted."
    assert "Delete 2 messages of the queue 'emails' for good?" in prompt.getvalue()
    say("")
    assert refused("purge", "emails").returncode == 2
    assert queue.metrics().length == 2

    say("yes\n")
    assert asked("purge", "emails") == {"done": 2, "skipped": 0}
    assert queue.metrics().length == 0


def test_some_are_purged_without_a_question(queue):
    first, second, third = queue.send_batch([1, 2, 3])

    assert asked("purge", "emails", "--ids", f"{first},{third}", "--no-input")["done"] == 2

    assert [one.id for one in queue_of(queue)] == [second]
    assert "Deleted 0 messages." in run("purge", "emails", "--ids", "9", "--no-input", status=1)


def test_a_project_that_has_pgmq_alone_has_the_command(committed, processes, tmp_path):
    (tmp_path / "alone_settings.py").write_text(
        "from tests.settings_worker import *\n"
        "INSTALLED_APPS = ['django_pgjobs.pgmq']\n"
        "MIDDLEWARE = []\n"
        "del ROOT_URLCONF\n"
    )
    committed.send({"password": "hunter2"})
    alone = {"DJANGO_SETTINGS_MODULE": "alone_settings"}
    for verb, status in (
        (["metrics", "emails"], 0),
        (["list", "emails"], 0),
        (["show", "emails", "7"], 1),
        (["redrive", "emails"], 1),
        (["purge", "emails"], 2),
        (["purge", "emails", "--no-input"], 0),
        (["list"], 2),
    ):
        process = processes.start("pgmq", *verb, **alone)
        assert process.wait() == status, process.output
        assert "hunter2" not in process.output
        assert "Traceback" not in process.output


USAGES = [
    (("list", "EMAILS"), "in lower case"),
    (("list", ""), "text that is not empty"),
    (("show", "emails", "x"), "must be a whole number"),
    (("redrive", "emails", "--ids", ""), "must be a whole number"),
    (("redrive", "emails", "--ids", "1,,2"), "must be a whole number"),
    (("redrive", "emails", "--rate", "fast"), "messages a second"),
    (("redrive", "emails", "--rate", "0"), "messages a second"),
    (("redrive", "emails", "--rate", "nan"), "messages a second"),
    (("redrive", "emails", "--to", "a;b"), "pgmq refuses them"),
    (("redrive", "emails", "--limit", "0"), "must be a whole number"),
    (("metrics", "--database", "nowhere"), "alias of a PostgreSQL database"),
]


@pytest.mark.parametrize(("arguments", "said"), USAGES)
def test_wrong_usage_is_told_before_any_statement(
    arguments, said, django_assert_num_queries, queue
):
    with django_assert_num_queries(0), pytest.raises(CommandError) as caught:
        run(*arguments)
    assert said in str(caught.value)


@pytest.mark.parametrize("verb", VERBS)
def test_a_queue_that_was_dropped_meanwhile_is_told(queue, verb):
    queue.drop()
    more = {"show": ["1"], "purge": ["--no-input"], "grants": ["--viewer", "web"]}.get(verb, [])
    assert "The queue 'emails' must exist in pgmq" in str(refused(verb, "emails", *more))


def test_a_target_that_was_dropped_meanwhile_leaves_all_in_place(queue, dead):
    bury(queue, dead, 1)
    said = str(refused("redrive", "emails_dead", "--to", "nowhere"))
    assert "The queue 'nowhere' must exist in pgmq" in said
    assert dead.queue.metrics().length == 1


@pytest.mark.parametrize("arguments", [("metrics",), ("list", "emails")])
def test_a_database_without_pgmq_is_told(db, arguments):
    with connection.cursor() as cursor:
        cursor.execute("drop schema pgmq cascade")
    assert "must" in (said := str(refused(*arguments)))
    assert "pgmq" in said
