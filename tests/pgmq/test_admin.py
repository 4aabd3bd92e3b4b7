"""The pages of pgmq in the admin: who may see and do what, and what becomes of messages."""

from __future__ import annotations

import datetime
import io
import re
import threading
from itertools import product
from pathlib import Path
from urllib.parse import quote as url_quote

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import escape

from django_pgjobs.admin import message_acts, message_queues
from django_pgjobs.masking import MASK
from django_pgjobs.pgmq import DeadLetters, Queue, peeks
from django_pgjobs.roles import quoted
from tests.admin.test_denials import of_a_site
from tests.admin.test_hostile_text import CORPUS, INERT, Shape
from tests.roles import Role, sql

ROOT = Path(__file__).parents[2]
LIST = "/admin/django_pgjobs_pgmq/queuerecord/"
PEOPLE = {
    "nobody": (),
    "viewer": ("view_queuerecord",),
    "redriver": ("view_queuerecord", "change_queuerecord"),
    "purger": ("view_queuerecord", "delete_queuerecord"),
    "worker_of_jobs": ("view_queue", "change_queue", "delete_job"),
    "superuser": (),
}
MAY = {"redriver": {"redrive"}, "purger": {"purge"}, "superuser": {"redrive", "purge"}}


@pytest.fixture
def as_user(db):
    """Return what logs a client in as one of `PEOPLE`, or as a "visitor" who is nobody's."""

    def log_in(name: str) -> Client:
        client = Client()
        if name != "visitor":
            user = User.objects.create_user(name, is_staff=True, is_superuser=name == "superuser")
            user.user_permissions.set(Permission.objects.filter(codename__in=PEOPLE[name]))
            client.force_login(user)
        return client

    return log_in


@pytest.fixture
def dead(queue):
    Queue("emails_dead").create()
    return DeadLetters("emails_dead")


def bury(queue, dead, *bodies, reason="It bounced."):
    queue.send_batch(bodies)
    return [dead.bury(queue, message, reason) for message in queue.read(qty=len(bodies))]


@pytest.fixture
def letters(queue, dead):
    """The id of a dead letter."""
    return bury(queue, dead, 1)


def page(name: str, more: str = "change/") -> str:
    return f"{LIST}{quote(name)}/{more}"


def told(answer) -> list[str]:
    return [str(message) for message in answer.context["messages"]]


def bodies(name: str) -> list[object]:
    return [peek.message for peek in peeks.page(Queue(name), 1_000)[0]]


# ------------------------------------------------------------------------------------------ look


@pytest.mark.parametrize("person", ["visitor", *PEOPLE])
def test_only_who_may_view_queues_sees_them(as_user, queue, person):
    message_id = queue.send("seen")
    client = as_user(person)
    for address in (
        LIST,
        page("emails"),
        page("emails", f"message/{message_id}/"),
        page("emails", "history/"),
    ):
        answer = client.get(address)
        may = person in {"viewer", "redriver", "purger", "superuser"}
        assert answer.status_code == (200 if may else 302 if person == "visitor" else 403), address
    assert ("pgmq" in client.get("/admin/", follow=True).text) is may


def test_the_list_says_what_is_in_each_queue(as_user, queue, dead):
    hour_ago = timezone.now() - datetime.timedelta(hours=1)
    queue.send_batch(range(3), delay=hour_ago)
    queue.send(4, delay=60)
    queue.archive([1])
    with connection.cursor() as cursor:
        cursor.execute(
            "update pgmq.q_emails set enqueued_at = now() - interval '3 days' where msg_id = 2"
        )
    answer = as_user("viewer").get(LIST)
    [row, empty] = [row["figures"] for row in answer.context["queues"]]
    assert (row.queue, row.length, row.visible, row.total) == ("emails", 3, 2, 4)
    assert row.oldest_age - row.newest_age >= 3 * 86_400 - 60
    assert row.archive_bytes > 0
    assert (empty.queue, empty.length, empty.oldest_age) == ("emails_dead", 0, None)
    assert "3\N{NO-BREAK SPACE}days" in answer.text
    assert "KB" in answer.text


def test_a_page_takes_few_statements_about_queues_however_many_there_are(as_user, queue, dead):
    client = as_user("viewer")
    queue.send_batch(range(60))
    for address, most in ((LIST, 2), (page("emails"), 1)):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            client.get(address)
        about = [one["sql"] for one in queries if "pgmq" in one["sql"]]
        assert len(about) == most, about


def test_a_large_queue_is_counted_as_far_as_the_page_says(as_user, queue, dead, monkeypatch):
    monkeypatch.setattr(message_queues, "WINDOW", 1_000)
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into pgmq.q_emails (vt, message) select now(), '1' from generate_series(1, 20000);"
            "insert into pgmq.q_emails_dead (vt, message) select now(), '1' from generate_series(1, 1000);"
            "analyze pgmq.q_emails, pgmq.q_emails_dead"
        )
    client = as_user("viewer")
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(LIST)
    large, small = [row["figures"] for row in answer.context["queues"]]
    assert (large.length, large.visible, large.more, large.total) == (1_000, 1_000, True, 20_000)
    assert (small.length, small.visible, small.more) == (1_000, 1_000, False)
    assert "1000+" in answer.text
    assert "at least so many" in answer.text
    [sql] = [one["sql"] for one in queries if " union all " in one["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"explain (analyze, format json) {sql}")
        [[[plan]]] = cursor.fetchall()
    assert sum(rows_read(plan["Plan"])) < 5_000


@pytest.mark.parametrize("time", ["infinity", "-infinity", "0044-03-15 BC", "20000-01-01"])
def test_a_time_that_python_cannot_have_spoils_no_page(as_user, queue, time):
    queue.send(1)
    with connection.cursor() as cursor:
        cursor.execute("update pgmq.q_emails set enqueued_at = %s", [time])
    client = as_user("viewer")
    for address in (LIST, page("emails"), page("emails", "message/1/")):
        assert client.get(address).status_code == 200
    call_command("pgmq", "metrics", stdout=io.StringIO())


def rows_read(plan):
    """The rows that each node of a plan over a table has read."""
    if "Relation Name" in plan:
        yield (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    for part in plan.get("Plans", ()):
        yield from rows_read(part)


def test_queues_of_any_name_are_counted_and_one_that_is_dropped_meanwhile_hides_no_other(
    as_user, queue, monkeypatch
):
    with connection.cursor() as cursor:
        for name in ("per%cent", 'quo"te', "spa ce", "dollar$$"):
            cursor.execute("insert into pgmq.meta values (%s, false, false)", [name])
            quoted_name = quoted(f"q_{name}").replace("%", "%%")
            cursor.execute(f"create table pgmq.{quoted_name} (like pgmq.q_emails)", [])
            sequence = quoted(f"q_{name}_msg_id_seq").replace("%", "%%")
            cursor.execute(f"create sequence pgmq.{sequence}", [])
    assert {one.length for one in peeks.figures()} == {0}
    Queue("later").create()
    counted = peeks._counts

    def drop_before(alias, parts):
        Queue("later").drop()
        return counted(alias, parts)

    monkeypatch.setattr(peeks, "_counts", drop_before)
    assert "later" not in {one.queue for one in peeks.figures(most=5)}


def test_the_messages_of_a_queue_come_page_by_page(as_user, queue, monkeypatch):
    monkeypatch.setattr(message_queues, "IN_A_PAGE", 2)
    ids = queue.send_batch(range(5))
    client, seen, address = as_user("viewer"), [], page("emails")
    while address:
        answer = client.get(address)
        seen += [peek.id for peek, _ in answer.context["peeks"]]
        after = answer.context["next"]
        assert (f"?after={after}" in answer.text) is bool(after)
        address = after and f"{page('emails')}?after={after}"
    assert seen == ids
    assert "Next messages" not in answer.text
    assert [message.read_ct for message in queue.read(qty=5)] == [1] * 5


@pytest.mark.parametrize("after", ["x", "-1", "9" * 30, "\0", "", "²"])
def test_a_page_from_no_id_on_is_the_first(as_user, queue, after):
    queue.send(1)
    answer = as_user("viewer").get(f"{page('emails')}?after={url_quote(after)}")
    assert len(answer.context["peeks"]) == 1


def test_a_page_reads_no_more_rows_than_it_shows(as_user, queue):
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into pgmq.q_emails (vt, message) select now(), '1' from generate_series(1, 20000)"
        )
        cursor.execute("analyze pgmq.q_emails")
    client = as_user("viewer")
    with CaptureQueriesContext(connection) as queries:
        client.get(f"{page('emails')}?after=10000")
    [sql] = [one["sql"] for one in queries if "pgmq" in one["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"explain (analyze, format json) {sql}")
        [[plan]] = cursor.fetchall()
    [scan] = plan[0]["Plan"]["Plans"]
    assert (scan["Node Type"], scan["Actual Rows"]) == ("Index Scan", message_queues.IN_A_PAGE + 1)


def test_a_dead_letter_says_where_it_comes_from_and_why_it_is_here(as_user, queue, dead):
    [dead_id] = bury(queue, dead, {"to": "ada", "password": "hunter2"})
    client = as_user("viewer")
    for address in (page("emails_dead"), page("emails_dead", f"message/{dead_id}/")):
        text = client.get(address).text
        assert "It bounced." in text
        assert "emails" in text
        assert MASK in text
        assert "hunter2" not in text


def test_what_is_too_large_is_not_shown(as_user, queue, monkeypatch):
    monkeypatch.setattr(peeks, "IN_A_PAGE", 100)
    monkeypatch.setattr(peeks, "ALONE", 100)
    message_id = queue.send("x" * 500)
    client = as_user("viewer")
    for address in (page("emails"), page("emails", f"message/{message_id}/")):
        text = client.get(address).text
        assert "too large to be shown here" in text
        assert "x" * 50 not in text  # a CSRF token may have three
        assert ">null<" not in text


@pytest.mark.parametrize("moment", ["infinity", "-infinity", "200000-01-01", "4000-01-01 BC"])
def test_times_that_python_cannot_have_are_survived(as_user, queue, moment):
    message_id = queue.send(1)
    with connection.cursor() as cursor:
        cursor.execute("update pgmq.q_emails set vt = %s, enqueued_at = %s", [moment, moment])
    client = as_user("viewer")
    for address in (page("emails"), page("emails", f"message/{message_id}/")):
        assert client.get(address).status_code == 200


@pytest.mark.parametrize("body", ["9" * 5_000, "[" * 900 + "]" * 900, "1e400", "null"])
def test_json_that_python_cannot_read_is_survived(as_user, queue, body):
    with connection.cursor() as cursor:
        cursor.execute("select pgmq.send('emails', %s::jsonb)", [body])
    client = as_user("viewer")
    for address in (page("emails"), page("emails", "message/1/")):
        assert client.get(address).status_code == 200


def test_hostile_text_adds_no_element_and_no_attribute(as_user, db):
    client = as_user("superuser")

    def shapes(text: str) -> list[Shape]:
        name = text.lower().replace("'", "").replace("$", "").replace(";", "").replace("--", "")
        source, dead = Queue(name), DeadLetters("zz dead")
        source.create()
        dead.queue.create()
        source.send({text: [text]}, headers={text: text})
        [message] = source.read()
        dead_id = dead.bury(source, message, text)
        pages = [
            client.get(LIST),
            client.get(page(name)),
            client.get(page("zz dead")),
            client.get(page("zz dead", f"message/{dead_id}/")),
            client.post(page(name, "act/redrive/"), {"all": "1"}),
            client.post(page(name, "act/purge/"), {"all": "1"}),
            client.post(
                page(name, "act/redrive/"), {"all": "1", "confirmed": "1", "into": f"no {text}"}
            ),
            client.post(page("zz dead", "act/redrive/"), {"all": "1", "confirmed": "1"}),
        ]
        found = [Shape(one.text) for one in pages[:-1]] + [
            Shape(client.get(page("zz dead", "history/")).text)
        ]
        assert [one.status_code for one in pages] == [200] * 7 + [302]
        source.drop()
        dead.queue.drop()
        LogEntry.objects.all().delete()
        return found

    harmless = shapes(INERT)
    for text in CORPUS:
        for expected, found in zip(harmless, shapes(text), strict=True):
            assert found.elements == expected.elements, text
            assert not [one for one in found.links if one.lower().startswith("javascript:")]


@pytest.mark.parametrize(
    "name", ["a/b", "with space", "%s", 'with"quote', "_5f", "ümläut", "?x=1#"]
)
def test_every_name_has_its_page(as_user, db, name):
    Queue(name).create()
    message_id = Queue(name).send("here")
    client = as_user("superuser")
    links = [one for one in Shape(client.get(LIST).text).links if one.endswith("/change/")]
    assert links == [page(name).replace(quote(name), url_quote(quote(name)))]
    assert [peek.message for peek, _ in client.get(links[0]).context["peeks"]] == ["here"]
    assert "here" in client.get(page(name, f"message/{message_id}/")).text
    answer = client.post(page(name, "act/purge/"), {"all": "1", "confirmed": "1"}, follow=True)
    assert told(answer) == ["Purge: 1 message."]


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_browsers_fold_is_listed_without_a_page(as_user, db, name):
    Queue(name).create()
    answer = as_user("viewer").get(LIST)
    assert [row["figures"].queue for row in answer.context["queues"]] == [name]
    assert not [one for one in Shape(answer.text).links if one.endswith("/change/")]


def test_a_name_that_other_programs_gave_is_listed_without_a_page(as_user, queue):
    with connection.cursor() as cursor:
        cursor.execute("select pgmq.create('Shouted')")
    client = as_user("viewer")
    text = client.get(LIST).text
    assert "Shouted" in text
    assert quote("Shouted") + "/change/" not in text
    answer = client.get(page("Shouted"), follow=True)
    assert told(answer) == ["There is no queue 'Shouted' in pgmq, or not any more."]


# ------------------------------------------------------------------------------------------- act


@pytest.mark.parametrize(("act", "choice"), list(product(["redrive", "purge"], ["all", "id"])))
@pytest.mark.parametrize("person", ["visitor", *PEOPLE])
def test_only_who_has_the_permission_may_act(as_user, letters, person, act, choice):
    [dead_id] = letters
    client = as_user(person)
    data = {choice: "1" if choice == "all" else dead_id, "confirmed": "1"}
    answer = client.post(page("emails_dead", f"act/{act}/"), data)
    allowed = act in MAY.get(person, set())
    assert answer.status_code == (302 if allowed or person == "visitor" else 403)
    assert (bodies("emails_dead") == []) is allowed
    assert LogEntry.objects.count() == allowed


@pytest.mark.parametrize("person", ["viewer", "redriver", "purger", "superuser"])
def test_the_pages_offer_what_the_user_may_do(as_user, queue, person):
    message_id = queue.send(1)
    client = as_user(person)
    for address in (page("emails"), page("emails", f"message/{message_id}/")):
        text = client.get(address).text
        offered = {act for act in ("redrive", "purge") if page("emails", f"act/{act}/") in text}
        assert offered == MAY.get(person, set())
        if not offered:
            assert 'type="checkbox"' not in text


@pytest.mark.parametrize("act", ["redrive", "purge"])
def test_nothing_is_done_before_it_is_confirmed(as_user, queue, dead, act):
    ids = bury(queue, dead, 1, 2)
    client = as_user("superuser")
    for data, said in (({"id": ids}, "2 messages of emails_dead"), ({"all": "1"}, "all messages")):
        answer = client.post(page("emails_dead", f"act/{act}/"), data)
        assert answer.status_code == 200
        assert said in answer.text
        assert len(bodies("emails_dead")) == 2
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("method", ["get", "head", "options", "put", "patch", "delete"])
def test_no_other_method_than_post_acts(as_user, queue, method):
    queue.send(1)
    client = as_user("superuser")
    for act in ("redrive", "purge"):
        address = f"{page('emails', f'act/{act}/')}?all=1&confirmed=1"
        assert getattr(client, method)(address).status_code == 405
    assert bodies("emails") == [1]


def test_a_post_without_its_token_is_refused(as_user, queue):
    queue.send(1)
    client = Client(enforce_csrf_checks=True)
    client.cookies = as_user("superuser").cookies
    data = {"all": "1", "confirmed": "1"}
    assert client.post(page("emails", "act/purge/"), data).status_code == 403
    assert bodies("emails") == [1]


def test_an_act_that_there_is_none_of_is_refused(as_user, queue):
    client = as_user("superuser")
    assert client.post(page("emails", "act/drop/"), {"all": "1"}).status_code == 403


@pytest.mark.parametrize("ids", [[], ["x"], ["\0"], ["-1"], ["9" * 40]])
def test_a_selection_of_none_changes_nothing(as_user, queue, ids):
    queue.send(1)
    data = {"id": ids, "confirmed": "1"}
    answer = as_user("superuser").post(page("emails", "act/purge/"), data, follow=True)
    assert told(answer) == ["Nothing was changed: no message was selected."]
    assert bodies("emails") == [1]


def test_selected_dead_letters_go_back_and_the_history_says_who_did_it(as_user, queue, dead):
    first, _, third = bury(queue, dead, 1, 2, 3)
    client = as_user("superuser")
    data = {"id": [first, third, 999], "confirmed": "1"}
    answer = client.post(page("emails_dead", "act/redrive/"), data, follow=True)
    assert told(answer) == [
        "Redrive: 2 messages. 1 was skipped: not there, from no queue that exists, or locked at this moment."
    ]
    assert bodies("emails") == [1, 3]
    assert bodies("emails_dead") == [2]
    [entry] = client.get(page("emails_dead", "history/")).context["action_list"]
    assert (entry.user.username, entry.object_repr) == ("superuser", "emails_dead")
    assert entry.change_message == "Redrive (messages: 2)"


def test_all_go_into_another_queue_at_a_rate(as_user, queue, dead):
    Queue("quarantine").create()
    bury(queue, dead, 1, 2, 3)
    data = {"all": "1", "confirmed": "1", "into": "quarantine", "rate": "0.01"}
    as_user("redriver").post(page("emails_dead", "act/redrive/"), data)
    found = peeks.page(Queue("quarantine"), 10)[0]
    waits = [round((one.vt - one.enqueued_at).total_seconds()) for one in found]
    assert [wait - waits[0] for wait in waits] == [0, 100, 200]
    assert bodies("emails_dead") == []
    assert LogEntry.objects.get().change_message == "redrive (messages=3&into=quarantine&rate=0.01)"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"into": "nowhere"}, "There is no queue of this name."),
        ({"into": "a;b"}, "There is no queue of this name."),
        ({"into": "\0"}, "Null characters are not allowed."),
        ({"into": "x" * 99}, "at most 47 characters"),
        ({"rate": "0"}, "greater than or equal to 0.001"),
        ({"rate": "nan"}, "Enter a number."),
        ({"rate": "1e99"}, "less than or equal to 1000000"),
        ({"rate": "fast"}, "Enter a number."),
    ],
)
def test_where_and_how_fast_must_be_possible(as_user, queue, dead, wrong, said):
    bury(queue, dead, 1)
    data = {"all": "1", "confirmed": "1", **wrong}
    answer = as_user("superuser").post(page("emails_dead", "act/redrive/"), data)
    assert answer.status_code == 200
    assert said in answer.text
    assert bodies("emails_dead") == [1]


def test_so_many_go_at_once(as_user, queue, dead, monkeypatch):
    monkeypatch.setattr(message_acts, "MOST", 2)
    bury(queue, dead, 1, 2, 3)
    client, data = as_user("superuser"), {"all": "1", "confirmed": "1"}
    answers = [
        client.post(page("emails_dead", "act/redrive/"), data, follow=True) for _ in range(2)
    ]
    assert [told(answer) for answer in answers] == [
        ["Redrive: 2 messages. So many go at once: there may be more."],
        ["Redrive: 1 message. What comes from no queue that exists has stayed."],
    ]


def test_some_and_then_all_are_purged(as_user, queue):
    first, _, third = queue.send_batch([1, 2, 3])
    client = as_user("purger")
    answer = client.post(
        page("emails", "act/purge/"), {"id": [first, third], "confirmed": "1"}, follow=True
    )
    assert told(answer) == ["Purge: 2 messages."]
    assert bodies("emails") == [2]
    data = {"all": "1", "confirmed": "1"}
    assert told(client.post(page("emails", "act/purge/"), data, follow=True)) == [
        "Purge: 1 message."
    ]
    assert bodies("emails") == []


# --------------------------------------------------------------------------------- what is not there


def test_a_queue_that_was_dropped_meanwhile_is_told(as_user, queue):
    message_id = queue.send(1)
    queue.drop()
    client = as_user("superuser")
    data = {"all": "1", "confirmed": "1"}
    answers = [
        client.get(page("emails"), follow=True),
        client.get(page("emails", f"message/{message_id}/"), follow=True),
        *(
            client.post(page("emails", f"act/{a}/"), data, follow=True)
            for a in ("redrive", "purge")
        ),
    ]
    for answer in answers:
        assert answer.redirect_chain == [(LIST, 302)]
        assert told(answer) == ["There is no queue 'emails' in pgmq, or not any more."]
    assert client.get(page("emails", "history/"), follow=True).status_code == 200


def test_a_message_that_somebody_took_meanwhile_is_told(as_user, queue):
    queue.send(1)
    queue.pop()
    client = as_user("viewer")
    for message_id in ("1", "0", "9" * 19, "9" * 40):
        answer = client.get(page("emails", f"message/{message_id}/"), follow=True)
        assert told(answer) == [
            f"Message {message_id} is not in the queue emails, or not any more."
        ]


@pytest.mark.parametrize("atomic", [False, True], ids=["autocommit", "atomic requests"])
def test_without_pgmq_the_page_says_how_to_install_it(as_user, queue, monkeypatch, atomic):
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic)
    client = as_user("superuser")
    with connection.cursor() as cursor:
        cursor.execute("drop schema pgmq cascade")
    answer = client.get(LIST)
    assert answer.status_code == 200
    assert "pip install" in answer.text
    assert "manage.py migrate django_pgjobs_pgmq" in answer.text
    for more in ("change/", "message/1/", "history/"):
        answer = client.get(page("emails", more), follow=True)
        assert answer.redirect_chain == [(LIST, 302)]
        assert "pip install" in answer.text


def test_a_pgmq_that_is_too_old_is_told(as_user, queue):
    client = as_user("viewer")
    with connection.cursor() as cursor:
        cursor.execute("alter table pgmq.meta rename column is_unlogged to unknown")
    text = client.get(LIST).text
    assert "or is too old" in text
    assert "is_unlogged" in text


def test_a_purge_does_not_wait_for_a_queue_that_is_in_use(committed, as_user, django_db_blocker):
    committed.send(1)
    held, done = threading.Event(), threading.Event()

    def use() -> None:
        with transaction.atomic():
            committed.read()
            held.set()
            done.wait(15)  # that long, where the purge should wait
        connections.close_all()

    thread = threading.Thread(target=use)
    thread.start()
    try:
        assert held.wait(60)
        data = {"all": "1", "confirmed": "1"}
        answer = as_user("superuser").post(page("emails", "act/purge/"), data, follow=True)
    finally:
        done.set()
        thread.join()
    assert told(answer) == ["Nothing was changed: the queue is in use. Try again in a moment."]
    assert bodies("emails") == [1]
    assert not LogEntry.objects.exists()


# ------------------------------------------------------------------------ what the role may not do


@pytest.fixture
def role(queue, dead):
    """A role that has what Django's own pages need, and nothing of pgmq."""
    return of_a_site()


def grant_what_is_printed(told: str, part: str, role: Role) -> None:
    """Do what a page says."""
    assert escape(f"python manage.py pgmq grants --{part} {role.name}") in told
    printed = io.StringIO()
    call_command("pgmq", "grants", **{part: [role.name]}, stdout=printed)
    sql(printed.getvalue())


def pages_of(message_id: int) -> list[str]:
    return [LIST, page("emails"), page("emails", f"message/{message_id}/")]


def test_a_role_without_privileges_on_pgmq_is_told_what_to_grant(as_user, role, letters):
    client = as_user("superuser")
    with role.assumed():
        for address in (*pages_of(1), page("emails", "history/")):
            answer = client.get(address)
            assert answer.status_code == 503, address
            assert "permission denied for schema pgmq" in answer.text
    grant_what_is_printed(answer.text, "viewer", role)
    message_id = Queue("emails").send(1)
    with role.assumed():
        for address in (*pages_of(message_id), page("emails", "history/")):
            assert client.get(address).status_code == 200, address


@pytest.mark.parametrize("act", ["redrive", "purge"])
def test_an_act_that_is_refused_is_told_where_it_came_from(as_user, role, letters, act):
    client = as_user("superuser")
    call_command("pgmq", "grants", viewer=[role.name], stdout=(printed := io.StringIO()))
    sql(printed.getvalue())
    posted = {"all": "1", "confirmed": "1"}
    with role.assumed():
        answer = client.post(page("emails_dead", f"act/{act}/"), posted, follow=True)
        assert answer.redirect_chain == [(page("emails_dead"), 302)]
        assert "permission denied for table q_emails_dead" in told(answer)[0]
    assert len(bodies("emails_dead")) == 1
    grant_what_is_printed(told(answer)[0], "operator", role)
    with role.assumed():
        client.post(page("emails_dead", f"act/{act}/"), posted)
    assert bodies("emails_dead") == []


def test_who_was_granted_what_the_documentation_says_uses_queues_that_come_later(role, queue):
    text = (ROOT / "docs/how-to/pgmq.md").read_text()
    [statements] = re.findall(r"^GRANT[^`]* ON ALL TABLES IN SCHEMA pgmq[^`]*", text, re.MULTILINE)
    sql(statements.replace('"web"', role.name))
    Queue("later").create()
    with role.assumed():
        for each in (queue, Queue("later")):
            each.send_batch([1, 2, 3])
            assert each.archive(each.read(qty=2)) == [1, 2]
            assert each.delete(each.read(qty=2)) == [3]
            assert each.metrics().total == 3
