"""What the pages of the admin show, to whom, and at what cost."""

from __future__ import annotations

import datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgjobs import masking, registry, windows
from django_pgjobs.models import Job, Queue, Worker
from django_pgjobs.queues import depths
from tests.admin.conftest import PEOPLE
from tests.db import rows

JOBS, WORKERS, QUEUES = (f"/admin/django_pgjobs/{name}/" for name in ("job", "worker", "queue"))
SEES = {
    "nobody": set(),
    "pauser": {QUEUES},
    "retrier": {JOBS},
    "canceller": {JOBS},
    "deleter": {JOBS},
    "viewer": {JOBS, WORKERS, QUEUES},
    "superuser": {JOBS, WORKERS, QUEUES},
}


def listed(client, query: str = "") -> list[int]:
    return [job.pk for job in client.get(JOBS + query).context["cl"].result_list]


@pytest.mark.parametrize("person", ["visitor", *PEOPLE])
def test_only_who_may_look_sees_a_page(as_user, person):
    client = as_user(person)
    job, worker = rows.make("failed"), rows.make_worker()
    for page in (JOBS, WORKERS, QUEUES):
        expected = 302 if person == "visitor" else 200 if page in SEES[person] else 403
        assert client.get(page).status_code == expected, page
    for page, one in ((JOBS, job), (WORKERS, worker)):
        expected = 302 if person == "visitor" else 200 if page in SEES[person] else 403
        assert client.get(f"{page}{one.pk}/change/").status_code == expected, page


@pytest.mark.parametrize("person", ["viewer", "superuser"])
def test_nothing_can_be_edited_or_made(as_user, person):
    client = as_user(person)
    job = rows.make("failed")
    before = rows.row(job)
    assert (
        client.post(f"{JOBS}{job.pk}/change/", {"kind": "x", "status": "done"}).status_code == 403
    )
    assert client.post(f"{JOBS}add/", {"kind": "x"}).status_code == 403
    assert client.post(f"{JOBS}{job.pk}/delete/", {"post": "yes"}).status_code == 403
    assert rows.row(job) == before
    assert Job.objects.count() == 1


def test_the_filters_choose(as_user):
    client = as_user("viewer")
    old = rows.make("failed", kind="a", queue="q")
    now = timezone.now()
    new = rows.make("failed", kind="b", queue="r", finished_at=now)
    waiting = rows.make("pending", kind="a", queue="r")
    assert listed(client) == [waiting.pk, new.pk, old.pk]
    assert listed(client, "?status=failed") == [new.pk, old.pk]
    assert listed(client, "?status=failed&finished=day") == [new.pk]
    assert listed(client, "?finished=hour") == [new.pk]
    assert listed(client, "?kind=a") == [waiting.pk, old.pk]
    assert listed(client, "?queue=r") == [waiting.pk, new.pk]
    assert listed(client, "?status=pending&queue=r&kind=a") == [waiting.pk]
    assert listed(client, "?status=done") == []


def test_a_search_finds_an_id_a_subject_or_a_kind(as_user):
    client = as_user("viewer")
    job = rows.make("done", kind="a", subject_type="shop.order", subject_id="7")
    rows.make("done", kind="b")
    for term in (str(job.pk), f"%23{job.pk}", "shop.order:7", "Shop.Order:7", "a"):
        assert listed(client, f"?q={term}") == [job.pk], term
    for term in ("shop.order:8", "0", "9" * 30, "nothing", "²", ":"):
        assert listed(client, f"?q={term}") == [], term


def test_a_search_finds_a_kind_that_has_a_colon(as_user, monkeypatch):
    client = as_user("viewer")
    made = [rows.make("done", kind=kind) for kind in ("reports:daily", "shop.order:7")]
    rows.make("done", subject_type="shop.order", subject_id="8")
    assert listed(client, "?q=reports:daily") == [made[0].pk]
    assert listed(client, "?q=shop.order:7") == []
    monkeypatch.setattr(registry, "kinds", lambda: {"shop.order:7": registry.get_job("noop")})
    assert listed(client, "?q=shop.order:7") == [made[1].pk]


def test_a_list_says_of_which_jobs_it_looked_at_the_first(as_user):
    client = as_user("viewer")
    for query, of in (
        ("?kind=a", "only the newest 10,000 jobs were looked at"),
        ("?kind=a&status=done", "only the first 10,000 jobs of this status were looked at"),
    ):
        assert of in client.get(JOBS + query).text.replace("10000", "10,000")


def test_the_page_of_queues_leads_to_the_app_and_to_what_waits(as_user):
    rows.make("pending", queue="mail")
    text = as_user("superuser").get(QUEUES).text
    assert (
        '<th scope="row"><a href="/admin/django_pgjobs/job/?status=pending&amp;queue=mail">' in text
    )
    breadcrumbs = text.partition('class="breadcrumbs"')[2].partition("</nav>")[0]
    assert 'href="/admin/django_pgjobs/"' in breadcrumbs
    assert text.count("django_pgjobs/admin.css") == 1


def test_pending_jobs_are_listed_in_the_order_of_a_worker(as_user):
    low = rows.make("pending", priority=-1)
    late = rows.make("pending", run_at=rows.FUTURE)
    first = rows.make("pending", priority=5)
    assert listed(as_user("viewer"), "?status=pending") == [first.pk, late.pk, low.pk]


def test_the_page_of_a_job_tells_all_that_is_known(as_user):
    errors = [
        {
            "attempt": 1,
            "error": "builtins.ValueError",
            "message": "no luck",
            "traceback": "Traceback (most recent call last):\nValueError: no luck",
            "worker": "host:1 #7",
            "at": "2026-01-02T03:04:05+00:00",
        }
    ]
    job = rows.make("failed", payload={"order_id": 2**63 + 1}, errors=errors, last_error="no luck")
    text = as_user("viewer").get(f"{JOBS}{job.pk}/change/").text
    for part in (
        str(2**63 + 1),
        "ValueError: no luck",
        "host:1 #7",
        "Attempt 1 failed",
        "Enqueued",
    ):
        assert part in text, part


def test_a_snoozed_job_shows_that_it_was_started(as_user):
    snoozed, new = rows.make(claims=1, attempted_at=rows.AGO, run_at=rows.FUTURE), rows.make()
    client = as_user("viewer")
    pages = [client.get(f"{JOBS}{job.pk}/change/").text for job in (snoozed, new)]
    assert ["Last attempt began" in page for page in pages] == [True, False]
    assert "Due (attempt 1)" in pages[0]


def test_a_row_that_sql_has_filled_oddly_is_shown_all_the_same(as_user):
    client = as_user("viewer")
    odd = [1, "x", None, {"at": 7}, {"at": "yesterday", "attempt": None}, {"traceback": ["a"]}]
    odd += [{"at": "2026-13-01T00:00:00Z"}, {"at": "2026-01-02T03:04:05"}]
    job = rows.make("failed", errors=odd, result={"a": [1e300, None]}, payload={"": {"é": "<b>"}})
    text = client.get(f"{JOBS}{job.pk}/change/").text
    assert "Enqueued" in text  # Django shows "-" instead of what raises a ValueError
    assert "2026-13-01T00:00:00Z" in text
    assert client.get(JOBS).status_code == 200


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/Los_Angeles"])
def test_a_time_at_the_edge_of_the_calendar_is_shown_as_it_is(as_user, settings, at, zone):
    settings.TIME_ZONE = zone
    meta = {"schedule": "s", "tick": at}
    job = rows.make("failed", errors=[{"at": at, "attempt": 1}], meta=meta)
    text = as_user("viewer").get(f"{JOBS}{job.pk}/change/").text
    assert text.count(at) == 2


DEEP = "[" * 1_000 + "]" * 1_000
LONG = "9" * 5_000


@pytest.mark.parametrize(
    ("column", "json"),
    [
        ("payload", f'{{"a": {DEEP}}}'),
        ("result", DEEP),
        ("errors", DEEP),
        ("errors", f'[{{"message": {DEEP}, "attempt": {DEEP}, "worker": {DEEP}}}]'),
        ("meta", f'{{"schedule": {DEEP}}}'),
        ("payload", f'{{"a": {LONG}}}'),
        ("result", LONG),
        ("errors", f'[{{"message": {LONG}, "attempt": {LONG}}}]'),
        ("meta", f'{{"schedule": {LONG}, "tick": {LONG}}}'),
    ],
)
def test_json_that_python_cannot_read_is_shown_or_said_to_be_too_deep(as_user, column, json):
    client, job = as_user("superuser"), rows.make("failed")
    with connection.cursor() as cursor:
        cursor.execute(f"update django_pgjobs_job set {column} = %s::jsonb", [json])  # noqa: S608
    page = client.get(f"{JOBS}{job.pk}/change/")
    assert page.status_code == 200
    if column != "meta":
        assert ("Nested too deeply to be shown." if DEEP in json else LONG) in page.text
    assert client.get(f"{JOBS}{job.pk}/history/").status_code == 200
    client.post(f"{JOBS}{job.pk}/act/retry/")
    assert Job.objects.pending().exists()


def test_brackets_inside_a_text_nest_nothing(as_user):
    text = '\\"' + "[" * 1_000
    job = rows.make("done", result={"a": text}, payload={text: "{" * 1_000})
    page = as_user("viewer").get(f"{JOBS}{job.pk}/change/").text
    assert "Nested too deeply" not in page
    assert "[" * 1_000 in page


@pytest.mark.parametrize("queues", [5, "mail", {"a": 1}, [1, None], True])
def test_queues_that_sql_has_put_oddly_are_shown(as_user, queues):
    rows.make_worker(queues=queues)
    answer = as_user("viewer").get(WORKERS)
    assert answer.status_code == 200
    assert queues != "mail" or ">mail<" in answer.text


@pytest.mark.parametrize(
    "key",
    [
        "X-Api-Key",
        "Api-Key",
        "apikey",
        "api_key",
        "private-key",
        "pwd",
        "DB_PWD",
        "passcode",
        "auth",
        "Authorization",
        "authorisation",
        "oauth",
        "auth_header",
        "authToken",
        "passwd",
        "Set-Cookie",
    ],
)
def test_a_key_that_names_a_secret_hides_its_value(key):
    assert masking.masked({key: "canary"}) == {key: masking.MASK}


@pytest.mark.parametrize(
    "key", ["author", "authors", "co_author_id", "authority", "key", "api", "order"]
)
def test_a_key_that_names_no_secret_hides_nothing(key):
    assert masking.masked({key: "seen"}) == {key: "seen"}


def test_secrets_are_masked_wherever_they_are_nested(as_user):
    hidden = {
        "password": "canary-1",
        "list": [{"API_KEY": {"deep": "canary-2"}}],
        "x": {"authToken": 3},
    }
    job = rows.make("done", payload=hidden, result={"secret_word": "canary-4"})
    text = as_user("superuser").get(f"{JOBS}{job.pk}/change/").text
    assert "canary" not in text
    assert text.count(masking.MASK) == 4


def test_a_worker_shows_how_it_is(as_user):
    now = timezone.now()
    long_ago = now - datetime.timedelta(hours=1)
    living = rows.make_worker(queues=["mail"])
    stopping = rows.make_worker(stopping_at=now)
    silent = rows.make_worker(heartbeat_at=long_ago)
    dead = rows.make_worker(died_at=long_ago, death="signal 9")
    for _ in range(2):
        rows.make("running", locked_by=living.pk)
    found = as_user("viewer").get(WORKERS).context["cl"].result_list
    assert {w.pk: (w.life, w.jobs) for w in found} == {
        living.pk: ("living", 2),
        stopping.pk: ("stopping", 0),
        silent.pk: ("silent", 0),
        dead.pk: ("dead", 0),
    }
    assert Worker.objects.count() == 4


def test_queues_show_their_figures_and_can_be_paused_and_resumed(as_user):
    client = as_user("superuser")
    rows.make("pending", queue="mail", run_at=rows.AGO)
    rows.make("pending", queue="mail", priority=3)
    rows.make("pending", queue="mail", run_at=rows.FUTURE)
    rows.make("running", queue="pdf")
    rows.make("failed", queue="pdf", finished_at=timezone.now())
    rows.make("failed", queue="pdf")

    def figures(name: str):
        [queue] = [q for q in client.get(QUEUES).context["queues"] if q.name == name]
        return queue

    assert figures("mail")[1:5] == (2, 1, 0, 0)
    assert figures("mail").oldest == rows.AGO
    assert figures("pdf")[1:5] == (0, 0, 1, 1)
    client.post(f"{QUEUES}switch/", {"name": "mail", "pause": "1"})
    assert figures("mail").paused_by == "superuser"
    assert not rows.claimed()
    client.post(f"{QUEUES}switch/", {"name": "mail", "pause": "0"})
    assert figures("mail").paused_at is None
    assert len(rows.claimed()) == 2


@pytest.mark.parametrize("name", ["", "x" * 64, "é" * 32, "a\0b"])
def test_a_name_that_no_queue_can_have_is_refused(as_user, name):
    as_user("superuser").post(f"{QUEUES}switch/", {"name": name, "pause": "1"})
    assert not Queue.objects.exists()


def test_a_queue_that_sql_has_paused_by_a_longer_name_can_be_resumed(as_user):
    Queue.objects.create(name="é" * 63, paused_at=timezone.now())
    as_user("superuser").post(f"{QUEUES}switch/", {"name": "é" * 63, "pause": "0"})
    assert Queue.objects.get().paused_at is None


@pytest.mark.parametrize("person", ["viewer", "retrier", "nobody"])
def test_only_who_may_change_queues_pauses_one(as_user, person):
    assert (
        as_user(person).post(f"{QUEUES}switch/", {"name": "mail", "pause": "1"}).status_code == 403
    )
    assert not Queue.objects.exists()


def test_a_page_takes_few_queries_and_no_large_column(as_user):
    client = as_user("superuser")
    for n in range(60):
        rows.make("failed", payload={"big": "x" * 1_000}, kind=f"k{n % 3}")
    for query in ("", "?status=failed", "?kind=k1", "?p=2", "?q=k1"):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert client.get(JOBS + query).status_code == 200
        # A test is one transaction, and each view has a savepoint in one.
        assert len([q for q in queries if "SAVEPOINT" not in q["sql"]]) <= 10
        asked = [q["sql"] for q in queries if '"django_pgjobs_job"."kind"' in q["sql"]]
        assert asked
        assert not [sql for sql in asked if '"payload"' in sql or '"errors"' in sql]


def test_a_count_ends_at_the_window(as_user, monkeypatch):
    monkeypatch.setattr(windows, "WINDOW", 3)
    for _ in range(9):
        rows.make("done", kind="a")
    client = as_user("viewer")
    assert client.get(JOBS).context["cl"].result_count == 4
    assert len(listed(client, "?kind=a")) == 3


def test_pending_jobs_with_a_key_are_listed_and_counted_among_the_others(as_user):
    low = rows.make("pending", priority=-1)
    keyed = rows.make("pending", concurrency_key="call:1", priority=3)
    high = rows.make("pending", priority=5)

    assert listed(as_user("viewer"), "?status=pending") == [high.pk, keyed.pk, low.pk]
    assert [(depth.name, depth.due) for depth in depths("default")] == [("default", 3)]


@pytest.mark.parametrize("key", [None, "call:1"])
def test_the_page_of_a_job_says_why_it_is_not_running(as_user, settings, key):
    rows.make("running", concurrency_key="call:1")
    worker, job = rows.make_worker(), rows.make("pending", concurrency_key=key)
    client, page = as_user("superuser"), f"{JOBS}{job.pk}/change/"
    with CaptureQueriesContext(connection) as queries:
        text = client.get(page).text
    assert job.explain().text in text
    asked = [query["sql"] for query in queries if "SAVEPOINT" not in query["sql"]]
    assert len(asked) <= 10, asked  # outside a transaction there is no savepoint
    worker.delete()
    settings.LANGUAGE_CODE = "fr"
    assert "Aucun des workers vivants (0) ne sert sa file" in client.get(page).text


def test_the_list_of_workers_says_which_queues_are_left_out(as_user):
    rows.make_worker(exclude=["mail", "pdf"])
    assert "every queue but mail, pdf" in as_user("viewer").get(WORKERS).text


def test_why_has_the_times_in_the_form_of_the_page(as_user, settings):
    settings.TIME_ZONE, settings.LANGUAGE_CODE = "Europe/Vienna", "de"
    job = rows.make("pending", run_at=rows.FUTURE)
    text = as_user("superuser").get(f"{JOBS}{job.pk}/change/").text
    assert "Er ist erst ab 1. Januar 2999 01:00 fällig" in text
