"""Waiting jobs with a concurrency key, of which a page looks at the first alone: what it says of the others."""

from __future__ import annotations

import pytest

from django_pgjobs import queues, windows
from django_pgjobs.admin import lists
from django_pgjobs.admin import queues as page
from django_pgjobs.admin.overview import overview
from tests.db import rows

LIST, QUEUES = "/admin/django_pgjobs/job/", "/admin/django_pgjobs/queue/"
WARNING = "More than 3 of these jobs have a concurrency key."


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Take three jobs for many, and four lanes."""
    for module in (windows, lists, queues, page):
        monkeypatch.setattr(module, "WINDOW", 3)
    monkeypatch.setattr(windows, "LANES", 4)


def keyed(key, priority=0, queue="q", **columns):
    return rows.make("pending", concurrency_key=key, priority=priority, queue=queue, **columns)


def listed(client, query=""):
    answer = client.get(f"{LIST}?status=pending{query}")
    return [job.pk for job in answer.context["cl"].result_list], WARNING in answer.text


def test_of_few_keys_with_many_jobs_the_highest_priorities_are_listed(as_user):
    for _ in range(5):
        keyed("a")
    high, higher = keyed("b", 5), keyed("b", 9)
    free = rows.make("pending", queue="q", priority=7)
    found, is_warned = listed(as_user("viewer"))
    assert (found[:3], is_warned) == ([higher.pk, free.pk, high.pk], False)


def test_of_more_lanes_than_are_looked_at_the_page_says_that_one_may_be_missing(as_user):
    for n in range(5):
        keyed(f"key:{n}")
    last = keyed("z", 9)
    found, is_warned = listed(as_user("viewer"))
    assert (last.pk in found, is_warned) == (False, True)


def test_the_keys_of_other_queues_do_not_count(as_user):
    for n in range(5):
        keyed(f"key:{n}", queue="a")
        keyed("one", queue="b")
    high = keyed("two", 9, queue="b")
    client = as_user("viewer")
    assert listed(client)[1]
    found, is_warned = listed(client, "&queue=b")
    assert (found[0], is_warned) == (high.pk, False)


def test_lanes_are_found_over_keys_priorities_and_queues(as_user, monkeypatch):
    monkeypatch.setattr(windows, "LANES", 100)
    monkeypatch.setattr(windows, "WINDOW", 11)
    made = [
        keyed(key, priority, queue)
        for queue in ("a", "b")
        for priority in (3, 0, -3)
        for key in ("x", "y")
    ]
    found, _ = listed(as_user("viewer"))
    assert found == [job.pk for job in made]


def test_a_filter_without_an_index_looks_at_the_highest_priorities_too(as_user):
    for _ in range(5):
        keyed("a")
    high = keyed("b", 5, kind="one")
    assert listed(as_user("viewer"), "&kind=one")[0] == [high.pk]


def test_what_was_not_counted_is_not_told_as_none(as_user):
    for _ in range(5):
        keyed("a", run_at=rows.FUTURE)
    keyed("b", run_at=rows.AGO)
    rows.make("pending", queue="few")
    few, many = queues.depths("default")[-2:]
    assert [(q.name, q.more) for q in (few, many)] == [("few", False), ("q", True)]
    text = as_user("viewer").get(QUEUES).text
    assert ">0+<" in text
    assert ">3+<" in text
    assert "<td>?</td>" in text
    assert "+: at least so many." in text
    assert overview().more


def test_what_was_counted_is_told_without_a_doubt(as_user):
    for _ in range(3):
        keyed("a")
    text = as_user("viewer").get(QUEUES).text
    assert "+<" not in text
    assert "at least" not in text


def test_of_queues_without_number_the_first_are_shown_and_those_that_are_paused(
    as_user, monkeypatch
):
    monkeypatch.setattr(queues, "MOST_QUEUES", 3)
    for n in range(9):
        rows.make("pending", queue=f"q{n}", concurrency_key="a" if n % 2 else None)
    client = as_user("superuser")
    client.post(f"{QUEUES}switch/", {"name": "q8", "pause": "1"})
    text = client.get(QUEUES).text
    shown = [f"q{n}" for n in range(9) if f"queue=q{n}" in text]
    assert shown == ["q0", "q1", "q2", "q3", "q8"]
    assert "More than 3 queues have waiting jobs: only the first by name are shown." in text
    assert overview().more
