"""Staff read every page in their own language; what is stored and what is addressed is the same in all.

One tour of the pages is made in English and in each language, over rows that only differ in their ids. No
text of the second may have a message in English in it; and what both tours show nobody has marked.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import pytest
from babel.messages.pofile import read_po
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connection, transaction
from django.utils import timezone, translation
from django.utils.text import capfirst

from django_pgjobs import registry
from django_pgjobs.admin import lists
from django_pgjobs.admin.message_queues import IN_A_PAGE
from django_pgjobs.models import Job, Queue, Schedule, Worker
from django_pgjobs.pgmq import peeks
from tests import messages
from tests.db import rows

pytestmark = pytest.mark.newest

ADMIN = "/admin/django_pgjobs/"
SAID = ("title", "alt", "aria-label", "placeholder", "label")
SAID_BY_SCRIPTS = (
    "data-confirm",
    "data-done",
    "data-failed",
    "data-minute",
    "data-away",
    "data-out",
)
ADDRESSES = ("href", "src", "action", "name")
OURS = re.compile(r"\bzz\w*|superuser")  # what the rows and the user of a tour are called
# Titles of jobs, a rule, and what Django's own pages say alike in every language or in Spanish.
ALIKE = {"noop #0", "0 0 * * * (Europe/Paris)", "True", "False", "No"}
# Of the pages of pgmq: its name, the commands that install it, and messages.
ALIKE |= {"pgmq", "pip install 'django-pgjobs[pgmq]' python manage.py migrate django_pgjobs_pgmq"}
SAID_BY_THE_SERVER = {'relation "pgmq.meta" does not exist'}
ALIKE |= {"0 KB", '{"zzkey": "zz"}', *SAID_BY_THE_SERVER}
NUMBER = re.compile(r"\d+")
CRUMB = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} "  # before Django 6.1
PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[sd]")


class Tour(HTMLParser):
    """What the pages say and what they address, with 0 for every number."""

    def __init__(self) -> None:
        super().__init__()
        self.said: set[str] = set()
        self.addressed: list[tuple[str, str]] = []
        self._silent = False

    def handle_starttag(self, tag, attrs):
        self._silent = tag in {"script", "style"}
        of = {name: value or "" for name, value in attrs}
        spoken = [name for name in (*SAID, *SAID_BY_SCRIPTS) if name in of]
        if tag == "input" and of.get("type") in {"submit", "button", "reset"}:
            spoken.append("value")
        elif "value" in of and of.get("name") != "csrfmiddlewaretoken":
            self._address("value", of["value"])
        for name in spoken:
            self.handle_data(of[name])
        for name in ADDRESSES:
            if name in of:
                self._address(name, of[name])

    def handle_data(self, data):
        if not self._silent:
            self.said.add(NUMBER.sub("0", " ".join(data.split())))

    def handle_endtag(self, tag):
        self._silent = False

    def _address(self, name, value):
        self.addressed.append((name, NUMBER.sub("0", value)))


def fill() -> dict[str, Any]:
    """Store what makes every page say all that it can."""
    for model in (LogEntry, Job, Worker, Queue, Schedule):
        model.objects.all().delete()
    now = timezone.now()
    worker = rows.make_worker(host="zzhost", queues=["zzmail"])
    rows.make_worker(host="zzhost", stopping_at=now)
    rows.make_worker(host="zzhost", heartbeat_at=rows.AGO)
    rows.make_worker(host="zzhost", died_at=now, death="zzdeath")
    Queue.objects.create(name="zzpaused", paused_at=now, paused_by="superuser")
    error = {"attempt": 1, "error": "zzerror", "message": "zzmessage", "at": "2026-01-02T03:04:05Z"}
    for n, columns in enumerate(
        (
            {"every": datetime.timedelta(days=1), "from_code": True},
            {"every": datetime.timedelta(hours=2), "from_code": True, "removed_at": now},
            {"every": datetime.timedelta(minutes=3), "kind": "zzgone", "enabled": False},
            {"every": datetime.timedelta(seconds=90), "missed": "all"},
            {"cron": "0 3 * * *", "tz": "Europe/Paris", "missed": "skip"},
        )
    ):
        Schedule.objects.create(**{"name": f"zzschedule{n}", "kind": "noop", **columns})
    named = {"kind": "zzkind", "queue": "zzmail"}
    failed = {**named, "errors": [error], "last_error": "zzerror", "finished_at": now}
    made = {
        "worker": worker,
        "pending": rows.make("pending", **named),
        "delayed": rows.make("pending", run_at=rows.FUTURE, **named),
        "running": rows.make("running", locked_by=worker.pk, cancel_requested_at=now, **named),
        "done": rows.make("done", result={"zzkey": 1}, **named),
        "failed": rows.make("failed", **failed),
        "cancelled": rows.make("cancelled", **named),
    }
    LogEntry.objects.create(
        user=User.objects.get(),
        content_type=ContentType.objects.get_for_model(Job),
        object_repr="500 zz",
        action_flag=CHANGE,
        change_message="cancel (queue=zzmail)",
    )
    return made


def tour(client, language: str) -> tuple[Tour, list[Any]]:
    """Look at everything and do everything in this language; return what was seen and stored."""
    client.cookies["django_language"] = language
    made, seen = fill(), Tour()
    ids = [made[status].pk for status in Job.Status.values if status in made]

    def look(answer, status: int = 200) -> None:
        assert answer.status_code == status
        assert answer["Content-Language"] == language
        seen.feed(answer.text)

    def everywhere() -> None:
        for address in (
            "",
            "job/",
            "job/?status=pending",
            "job/?kind=zzkind",
            "worker/",
            "queue/",
            "schedule/",
            "schedule/add/",
        ):
            look(client.get(ADMIN + address))
        for pk in Job.objects.values_list("pk", flat=True):
            look(client.get(f"{ADMIN}job/{pk}/change/"))
            look(client.get(f"{ADMIN}job/{pk}/history/"))
        look(client.get(f"{ADMIN}worker/{made['worker'].pk}/change/"))
        look(client.get("/admin/"))
        seen.feed(client.get(f"{ADMIN}job/figures/").json()["cards"])

    def choose(act: str, pks: list[int], **more: str) -> None:
        chosen = {"action": act, "_selected_action": pks, **more}
        look(client.post(f"{ADMIN}job/", chosen, follow=True))

    everywhere()
    for pause in ("0", "1", "1", "0"):
        switch = {"name": "zzmail", "pause": pause}
        look(client.post(f"{ADMIN}queue/switch/", switch, follow=True))
    choose("delete", ids)
    choose("delete", ids[:1])
    choose("delete", ids[:1], select_across="1")
    choose("retry", ids)
    choose("retry", ids, select_across="1")
    choose("run_now", [made["delayed"].pk, made["running"].pk])
    look(client.post(f"{ADMIN}job/{made['done'].pk}/act/retry/", follow=True))
    look(client.post(f"{ADMIN}job/{made['failed'].pk}/act/cancel/", follow=True))
    tour_schedules(client, look, seen)
    if find_spec("pgmq"):
        tour_queues_of_pgmq(client, look)
    everywhere()
    choose("delete", ids[:1], confirmed="1")
    stored = [
        list(Job.objects.order_by("pk").values_list("status", "kind", "queue")),
        list(Queue.objects.order_by("pk").values_list("name", "paused_by")),
        list(LogEntry.objects.order_by("pk").values_list("action_flag", "content_type")),
        [NUMBER.sub("0", entry.change_message) for entry in LogEntry.objects.order_by("pk")],
        [NUMBER.sub("0", text) for text in LogEntry.objects.values_list("object_repr", flat=True)],
    ]
    return seen, stored


def tour_schedules(client, look, seen: Tour) -> None:
    """Look at them, switch them, run them, and make some that are refused."""
    pks = list(Schedule.objects.order_by("name").values_list("pk", flat=True))
    for act in ("disable", "enable", "run_now"):
        data = {"action": act, "_selected_action": pks}
        look(client.post(f"{ADMIN}schedule/", data, follow=True))
    for page in ("add/", *(f"{pk}/change/" for pk in pks), f"{pks[0]}/history/"):
        look(client.get(f"{ADMIN}schedule/{page}"))
    for wrong in ({}, {"tz": "zz"}, {"every": "0"}):
        data = {"name": "zz", "kind": "noop", "payload": "[1]", "tz": "UTC", "missed": "all"}
        seen.feed(client.post(f"{ADMIN}schedule/add/", {**data, **wrong}).text)


def tour_queues_of_pgmq(client, look) -> None:
    """Look at queues and messages, send them back and delete them; and where there is no pgmq."""
    from django_pgjobs.pgmq import DeadLetters, Queue  # noqa: PLC0415 -- not without the wheel

    address = "/admin/django_pgjobs_pgmq/queuerecord/"
    look(client.get(address))
    queue, dead = Queue("zzmail"), DeadLetters("zzdead")
    for one in (queue, dead.queue, Queue("zzempty")):
        one.create()
    queue.send_batch([{"zzkey": "zz"}] * (IN_A_PAGE + 2), delay=rows.AGO)
    for message in queue.read(vt=600, qty=2):
        dead.bury(queue, message, "zzreason")
    dead.queue.send("zz " * 10_000)
    last = queue.send("zz " * 1_000)
    look(client.get(address))
    for page in ("zzmail/change/", "zzmail/change/?after=50", "zzempty/change/?after=9",
                 "zzempty/change/", "zzdead/change/", "zzdead/message/1/", f"zzmail/message/{last}/"):  # fmt: skip
        look(client.get(f"{address}{page}"))
    for page in ("zzmail/message/99999/", "zznone/change/"):
        look(client.get(f"{address}{page}", follow=True))
    for act in ("redrive", "purge"):
        for chosen in ({}, {"id": [1]}, {"id": [2, 99]}, {"all": "1"}):
            for more in ({}, {"confirmed": "1", "into": "zznone", "rate": "x"}, {"confirmed": "1"}):
                look(client.post(f"{address}zzdead/act/{act}/", {**chosen, **more}, follow=True))
    look(client.get(f"{address}zzdead/history/"))
    for one in (queue, dead.queue, Queue("zzempty")):
        one.drop()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("alter schema pgmq rename to zzpgmq")
        look(client.get(address))
        cursor.execute("alter schema zzpgmq rename to pgmq")


@pytest.fixture
def staff(as_user, settings, monkeypatch):
    """A client whose pages come in the language of its cookie; a list says early that it is long."""
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]
    monkeypatch.setattr(lists, "WINDOW", 1)
    monkeypatch.setattr(peeks, "ALONE", 2_000)
    with translation.override("en"):
        yield as_user("superuser")


@pytest.fixture(scope="module")
def tours():
    """What the tours so far have seen and stored: any other of the same language would find the same."""
    return {}


@pytest.fixture
def toured(staff, tours):
    """Return what makes a tour in a language, unless there was one."""

    def find(language: str) -> tuple[Tour, list[Any]]:
        if language not in tours:
            tours[language] = tour(staff, language)
        return tours[language]

    return find


def same_by_nature(language: str) -> set[str]:
    """Return words that are one and the same in English and in the language, and names of the code."""
    words = {
        form
        for message in messages.read(language)
        for form in messages.forms(message.id)
        if form.lower() in map(str.lower, messages.forms(message.string))
    }
    kinds = registry.kinds()
    return (
        words | set(map(capfirst, words)) | kinds.keys() | {k.options.queue for k in kinds.values()}
    )


@cache
def said_by_django() -> re.Pattern[str]:
    """Return what matches the admin's own words, of which a language may lack the newest."""
    known = []
    for package in ("django.conf", "django.contrib.admin"):
        with (files(package) / "locale/en/LC_MESSAGES/django.po").open("rb") as file:
            known += [form for message in read_po(file) for form in messages.forms(message.id)]
    ours = {form for message in messages.extracted() for form in messages.forms(message.id)}
    patterns = [
        ".+".join(map(re.escape, PLACEHOLDER.split(text)))
        for text in known
        if text not in ours and re.search("[A-Za-z]{3}", PLACEHOLDER.sub("", text))
    ]
    return re.compile("|".join(patterns))


def originals(language: str) -> re.Pattern[str]:
    """Return what matches a message in English that the language has other words for."""
    same = {word.lower() for word in same_by_nature(language)}
    known = {form for message in messages.extracted() for form in messages.forms(message.id)}
    others = [
        re.escape(text) for text in known if text and text.lower() not in same and "%" not in text
    ]
    return re.compile(rf"\b(?:{'|'.join(others)})(?!\w)")


@pytest.mark.parametrize("language", messages.LANGUAGES)
def test_no_page_speaks_english_to_who_reads_another_language(toured, language):
    english, _ = toured("en")
    seen, _ = toured(language)
    same = {NUMBER.sub("0", word) for word in same_by_nature(language)}
    original = originals(language)
    assert [
        text
        for text in seen.said - same - SAID_BY_THE_SERVER
        if original.search(OURS.sub("", text))
    ] == []
    left = {
        text
        for text in (each.removeprefix(CRUMB) for each in english.said & seen.said)
        if any(map(str.isalpha, OURS.sub("", text)))
        and text.removeprefix("0 ").removesuffix(":") not in same
        and not said_by_django().fullmatch(text)
    }
    assert left <= ALIKE


@pytest.mark.parametrize("language", messages.LANGUAGES)
def test_rows_and_addresses_are_the_same_in_every_language(toured, language):
    english, stored_in_english = toured("en")
    seen, stored = toured(language)
    assert stored == stored_in_english
    assert Counter(seen.addressed) == Counter(english.addressed)  # models are sorted by their names
