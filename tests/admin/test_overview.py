"""The overview at the top of the app's page, and the sums behind its curves."""

from __future__ import annotations

import datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_pgjobs import reaper
from django_pgjobs.admin.overview import curves, overview
from django_pgjobs.claims import Claim
from django_pgjobs.figures import Figures
from django_pgjobs.models import Figure, Queue
from tests.admin.conftest import PEOPLE
from tests.db import rows
from tests.db.rows import execute

PAGE, FIGURES = "/admin/django_pgjobs/", "/admin/django_pgjobs/job/figures/"
pytestmark = pytest.mark.django_db


def test_it_shows_what_waits_runs_and_has_failed():
    rows.make("pending", queue="a", run_at=rows.AGO)
    rows.make("pending", queue="b")
    rows.make("pending", run_at=rows.FUTURE)
    rows.make("running")
    rows.make("failed", finished_at=timezone.now())
    rows.make("failed")
    rows.make_worker()
    rows.make_worker(heartbeat_at=rows.AGO)
    rows.make_worker(died_at=rows.AGO)
    Queue.objects.create(name="z", paused_at=timezone.now())
    now = overview()
    assert now._asdict() == {
        "due": 2,
        "more": False,
        "oldest": rows.AGO,
        "delayed": 1,
        "running": 1,
        "failed": 1,
        "paused": 1,
        "workers": 1,
        "silent": 1,
    }


def claim(kind: str, waited: float = 0.0) -> Claim:
    return Claim(1, kind, "{}", 1, 0, 5, 1, "q", waited)


def test_sums_of_several_workers_are_added_up():
    for _ in range(2):
        figures = Figures()
        figures.add(claim("a", 1.0), 2.0, failed=False)
        figures.add(claim("a", 0.5), 0.25, failed=True)
        figures.add(claim("b"), 0.0, failed=False)
        figures.write(execute)
        figures.write(execute)  # nothing is written twice
    sums = Figure.objects.order_by("kind").values_list(
        "queue", "kind", "done", "failed", "wait", "run"
    )
    assert list(sums) == [("q", "a", 2, 2, 3.0, 4.5), ("q", "b", 2, 0, 0.0, 0.0)]


def test_sums_that_cannot_be_written_are_kept():
    def refuse(*_args):
        raise ConnectionError

    figures = Figures()
    figures.add(claim("a", 1.0), 2.0, failed=False)
    with pytest.raises(ConnectionError):
        figures.write(refuse)
    figures.write(execute)
    assert Figure.objects.get().done == 1


def test_the_curves_have_every_minute_of_the_last_hours():
    now = timezone.now().replace(second=0, microsecond=0)
    for age, done, failed in ((0, 5, 1), (2, 7, 0), (400, 9, 9)):
        Figure.objects.create(
            minute=now - datetime.timedelta(minutes=age),
            queue="q",
            kind="a",
            done=done,
            failed=failed,
        )
    found = curves()
    assert len(found["minutes"]) == 180
    assert {b - a for a, b in zip(found["minutes"], found["minutes"][1:], strict=False)} == {60}
    assert found["done"][-3:] == [7, 0, 5]
    assert found["failed"][-3:] == [0, 0, 1]
    assert sum(found["done"]) == 12


def test_old_sums_are_pruned():
    for days in (0, 2, 4):
        Figure.objects.create(
            minute=timezone.now() - datetime.timedelta(days=days), queue="q", kind="a"
        )
    reaper.run(execute)
    assert Figure.objects.count() == 2


@pytest.mark.parametrize("person", ["visitor", *PEOPLE])
def test_only_who_may_see_jobs_sees_figures(as_user, person):
    client = as_user(person)
    sees = person in {"viewer", "retrier", "canceller", "deleter", "superuser"}
    page = client.get(PAGE)
    assert ("pgjobs-overview" in page.text) is sees
    answer = client.get(FIGURES)
    assert answer.status_code == (302 if person == "visitor" else 200 if sees else 403)
    if sees:
        assert set(answer.json()) == {"minutes", "done", "failed", "cards"}


def test_it_takes_few_queries(as_user):
    client = as_user("superuser")
    for n in range(30):
        rows.make("pending", queue=f"q{n}")
    for address in (PAGE, FIGURES):
        with CaptureQueriesContext(connection) as queries:
            assert client.get(address).status_code == 200
        assert len([query for query in queries if "SAVEPOINT" not in query["sql"]]) <= 10


def test_names_without_number_count_under_none():
    figures = Figures()
    for n in range(600):
        figures.add(claim(f"k{n}"), 0.0, failed=False)
    figures.write(execute)
    assert Figure.objects.count() == 501
    assert Figure.objects.get(kind="").done == 100
