"""Whatever text is stored or asked for, a page has the elements and attributes that it has for harmless text."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser
from urllib.parse import urlencode

from django.utils import timezone

from django_pgjobs.models import Job, Queue, Schedule, Worker
from tests.db import rows

CORPUS = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "</pre></textarea></title><svg/onload=alert(1)>",
    '"><svg onload=alert(1) x="',
    "' onfocus=alert(1) autofocus='",
    "javascript:alert(1)",
    "{{7*7}}{% load x %}",
    "&lt;b&gt; &#60;b&#62;",
    "<!--",
    "\u202e\u2066<b>",
]
INERT = "harmless"
MODELS = (Job, Worker, Queue, Schedule)
PAGES = ("", "job/", "job/{job}/change/", "worker/", "worker/{worker}/change/", "queue/", "schedule/",
         "schedule/{schedule}/change/")  # fmt: skip


class Shape(HTMLParser):
    """Elements and the names of their attributes, counted: rows and filters are sorted by text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.links: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements[tag, tuple(name for name, _ in attrs)] += 1
        self.links += [value or "" for name, value in attrs if name in {"href", "src", "action"}]


def fill(text: str) -> dict[str, int]:
    for model in MODELS:
        model.objects.all().delete()
    error = dict.fromkeys(("attempt", "error", "message", "traceback", "worker", "at"), text)
    job = rows.make(
        "failed",
        kind=text,
        queue=text,
        payload={text: [text, {text: text}]},
        result={text: text},
        errors=[error],
        last_error=text,
        subject_type=text,
        subject_id=text,
        concurrency_key=text,
        unique_key=text,
        finished_at=timezone.now(),
    )
    worker = rows.make_worker(host=text, queues=[text], death=text, died_at=timezone.now())
    Queue.objects.create(name=text, paused_at=timezone.now(), paused_by=text)
    schedule = Schedule.objects.create(
        name=text, kind=text, cron=text, tz=text, payload={text: text}
    )
    return {"job": job.pk, "worker": worker.pk, "schedule": schedule.pk}


def shapes(client, text: str) -> list[Shape]:
    made = fill(text)
    pages = [client.get("/admin/django_pgjobs/" + page.format(**made)) for page in PAGES]
    asked = {"q": f"no:{text}", "queue": text, "kind": text, "status": "failed"}
    for query in (asked, {**asked, "finished": text}):
        address = f"/admin/django_pgjobs/job/?{urlencode(query)}"
        pages.append(client.get(address, follow=True))
    selected = {"action": "delete", "_selected_action": [made["job"]]}
    pages.append(client.post("/admin/django_pgjobs/job/", selected))
    address = f"/admin/django_pgjobs/job/{made['job']}/act/retry/"
    pages.append(client.post(address, follow=True))
    pages.append(client.post("/admin/django_pgjobs/queue/switch/", {"name": text}, follow=True))
    assert {page.status_code for page in pages} == {200}
    cards = client.get("/admin/django_pgjobs/job/figures/").json()["cards"]
    return [*(Shape(page.text) for page in pages), Shape(cards)]


def test_hostile_text_adds_no_element_and_no_attribute(as_user):
    client = as_user("superuser")
    harmless = shapes(client, INERT)
    for text in CORPUS:
        for expected, found in zip(harmless, shapes(client, text), strict=True):
            assert found.elements == expected.elements, text
            assert not [
                link for link in found.links if link.strip().lower().startswith("javascript:")
            ]


def test_a_crawl_of_all_addresses_changes_no_row(as_user):
    client = as_user("superuser")
    made = fill(INERT)
    before = [list(model.objects.order_by("pk").values()) for model in MODELS]
    seen: set[str] = set()
    ahead = [
        "/admin/django_pgjobs/",
        *("/admin/django_pgjobs/" + page.format(**made) for page in PAGES),
    ]
    ahead += [f"/admin/django_pgjobs/job/{made['job']}/act/{act}/" for act in ("retry", "delete")]
    ahead.append("/admin/django_pgjobs/queue/switch/")
    while ahead:
        address = ahead.pop().partition("#")[0]
        if address in seen or not address.startswith("/admin/django_pgjobs/") or len(seen) >= 60:
            continue
        seen.add(address)
        for method in (client.get, client.head, client.options):
            answer = method(address)
            assert answer.status_code < 500, address
        if answer.status_code == 200:
            page = client.get(address)
            links = Shape(page.text).links if "html" in page["Content-Type"] else []
            ahead += [
                link if link.startswith("/") else address.partition("?")[0] + link for link in links
            ]
    assert len(seen) > 20
    after = [list(model.objects.order_by("pk").values()) for model in MODELS]
    assert after == before
