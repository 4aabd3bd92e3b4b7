"""Who may do what with a job in the admin, and what becomes of it."""

from __future__ import annotations

from collections import Counter

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from django_pgjobs.admin import lists, windows
from django_pgjobs.models import Job
from tests.admin.conftest import PEOPLE
from tests.db import rows

LIST = "/admin/django_pgjobs/job/"
ACTS = ("retry", "run_now", "cancel", "delete")
MAY = {
    "retrier": {"retry", "run_now"},
    "canceller": {"cancel"},
    "deleter": {"delete"},
    "superuser": set(ACTS),
}


def some_jobs() -> dict[str, Job]:
    """One job of each status, and a delayed one."""
    made = {
        status: rows.make(status)
        for status in ("pending", "running", "done", "failed", "cancelled")
    }
    return {**made, "delayed": rows.make("pending", run_at=rows.FUTURE)}


def statuses() -> Counter[str]:
    return Counter(Job.objects.values_list("status", flat=True))


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("person", ["visitor", *PEOPLE])
def test_only_who_has_the_permission_may_act_on_one(as_user, person, act):
    client = as_user(person)
    job = some_jobs()["delayed" if act in {"run_now", "cancel"} else "failed"]
    before = Job.objects.values().get(pk=job.pk)
    answer = client.post(f"{LIST}{job.pk}/act/{act}/")
    allowed = act in MAY.get(person, set())
    expected = 302 if allowed or person == "visitor" else 403
    assert answer.status_code == expected
    after = Job.objects.filter(pk=job.pk).values().first()
    assert (after != before) is allowed
    assert LogEntry.objects.count() == allowed


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("person", ["visitor", *PEOPLE])
def test_only_who_has_the_permission_may_act_on_a_selection(as_user, person, act):
    client = as_user(person)
    jobs = some_jobs()
    before = list(Job.objects.order_by("pk").values())
    data = {"action": act, "_selected_action": [job.pk for job in jobs.values()], "confirmed": "1"}
    client.post(LIST, data)
    allowed = act in MAY.get(person, set())
    assert (list(Job.objects.order_by("pk").values()) != before) is allowed
    assert LogEntry.objects.count() == allowed


def test_an_act_says_how_many_were_done_and_why_others_were_not(as_user):
    client = as_user("superuser")
    jobs = some_jobs()
    data = {"action": "retry", "_selected_action": [job.pk for job in jobs.values()]}
    answer = client.post(LIST, data, follow=True)
    [message] = [str(m) for m in answer.context["messages"]]
    assert (
        message
        == "Retry: 2 jobs. 4 were skipped: not cancelled or failed, or locked at this moment."
    )
    assert statuses() == {"pending": 4, "running": 1, "done": 1}
    entry = LogEntry.objects.get()
    assert (entry.user.username, entry.object_repr) == ("superuser", "2 \N{MULTIPLICATION SIGN}")


def test_all_that_match_the_filters_are_acted_on_beyond_the_page(as_user):
    client = as_user("superuser")
    for _ in range(60):
        rows.make("failed", kind="one")
    rows.make("failed", kind="other")
    [first] = Job.objects.filter(kind="one")[:1]
    data = {"action": "retry", "_selected_action": [first.pk], "select_across": "1"}
    client.post(f"{LIST}?status=failed&kind=one", data)
    assert Counter(Job.objects.values_list("kind", "status")) == {
        ("one", "pending"): 60,
        ("other", "failed"): 1,
    }


@pytest.mark.parametrize("query", ["", "?kind=one", "?q=one"])
def test_all_that_match_are_acted_on_beyond_what_was_looked_at(as_user, monkeypatch, query):
    monkeypatch.setattr(windows, "WINDOW", 3)
    client = as_user("superuser")
    jobs = [rows.make("failed", kind="one") for _ in range(5)]
    data = {"action": "retry", "_selected_action": [jobs[0].pk], "select_across": "1"}
    answer = client.post(f"{LIST}{query}", data, follow=True)
    [message] = [str(m) for m in answer.context["messages"]]
    assert message.startswith("Retry: 5 jobs. Any others were left alone")
    assert statuses() == {"pending": 5}


def test_a_list_says_how_many_all_are_where_it_knows(as_user):
    client = as_user("superuser")
    for _ in range(51):
        rows.make("failed", kind="one")
    exact, uncounted = "Select all 51 jobs", "Select all jobs that match, listed or not"
    for query in ("", "?status=failed", "?status=failed&finished="):
        assert exact in (text := client.get(LIST + query).text), query
        assert uncounted not in text
    for query in ("?kind=one", "?status=failed&queue=default", "?q=one"):
        assert uncounted in (text := client.get(LIST + query).text), query
        assert "Select all 51" not in text


def test_a_list_that_ends_at_the_window_promises_no_number(as_user, monkeypatch):
    for module in (windows, lists):
        monkeypatch.setattr(module, "WINDOW", 3)
    for _ in range(9):
        rows.make("failed")
    text = as_user("superuser").get(LIST).text
    assert "Select all jobs that match, listed or not" in text
    assert "More than 3 jobs." in text


def test_deleting_asks_first_and_leaves_running_jobs(as_user):
    client = as_user("superuser")
    jobs = some_jobs()
    data = {"action": "delete", "_selected_action": [job.pk for job in jobs.values()]}
    answer = client.post(LIST, data)
    assert answer.status_code == 200
    assert "Delete 6 jobs?" in answer.text
    assert Job.objects.count() == 6
    client.post(LIST, {**data, "confirmed": "1"})
    assert statuses() == {"running": 1}


@pytest.mark.parametrize("method", ["get", "head", "options", "put", "patch", "delete"])
def test_no_other_method_than_post_changes_a_row(as_user, method):
    client = as_user("superuser")
    jobs = some_jobs()
    before = list(Job.objects.order_by("pk").values())
    for act in ACTS:
        for job in jobs.values():
            assert getattr(client, method)(f"{LIST}{job.pk}/act/{act}/").status_code == 405
    assert list(Job.objects.order_by("pk").values()) == before


def test_a_post_without_its_token_is_refused(as_user):
    logged_in = as_user("superuser")
    client = Client(enforce_csrf_checks=True)
    client.cookies = logged_in.cookies
    job = rows.make("failed")
    assert client.post(f"{LIST}{job.pk}/act/retry/").status_code == 403
    assert statuses() == {"failed": 1}


def test_the_page_of_a_job_offers_what_its_status_and_the_user_allow(as_user):
    client = as_user("superuser")
    jobs = some_jobs()
    offered = {
        name: {
            act
            for act in ACTS
            if reverse("admin:django_pgjobs_job_act", args=[job.pk, act])
            in client.get(f"{LIST}{job.pk}/change/").text
        }
        for name, job in jobs.items()
    }
    assert offered == {
        "pending": {"run_now", "cancel", "delete"},
        "delayed": {"run_now", "cancel", "delete"},
        "running": {"cancel"},
        "done": {"delete"},
        "failed": {"retry", "delete"},
        "cancelled": {"retry", "delete"},
    }
