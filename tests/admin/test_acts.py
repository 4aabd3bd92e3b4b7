"""Who may do what with a job in the admin, and what becomes of it."""

from __future__ import annotations

from collections import Counter

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_pgjobs import windows
from django_pgjobs.admin import acts, lists
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


def told(answer) -> str:
    [message] = answer.context["messages"]
    return str(message)


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
    assert LogEntry.objects.exists() is allowed


def test_an_act_says_how_many_were_done_and_why_others_were_not(as_user):
    client = as_user("superuser")
    jobs = some_jobs()
    data = {"action": "retry", "_selected_action": [job.pk for job in jobs.values()]}
    assert told(client.post(LIST, data, follow=True)) == (
        "Retry: 2 jobs. 4 were skipped: not failed or cancelled, or locked at this moment."
    )
    assert statuses() == {"pending": 4, "running": 1, "done": 1}


REASONS = {
    "retry": "not failed or cancelled, or locked at this moment.",
    "run_now": "not pending, due already, or locked at this moment.",
    "cancel": "finished, asked to stop before, or locked at this moment.",
    "delete": "running, or locked at this moment.",
}


@pytest.mark.parametrize("act", ACTS)
def test_a_job_that_an_act_is_not_for_is_told_why(as_user, act):
    columns = {"cancel_requested_at": rows.AGO} if act == "cancel" else {}
    status = "pending" if act in {"retry", "run_now"} else "running"
    job = rows.make(status, **columns)
    before = rows.row(job)
    answer = as_user("superuser").post(f"{LIST}{job.pk}/act/{act}/", follow=True)
    assert told(answer).endswith(f": 0 jobs. 1 was skipped: {REASONS[act]}")
    assert rows.row(job) == before
    assert not LogEntry.objects.exists()


def test_a_running_job_that_is_cancelled_was_asked_to_stop_and_shows_it(as_user):
    client = as_user("superuser")
    jobs = [rows.make("running"), rows.make("running"), rows.make("pending")]
    data = {"action": "cancel", "_selected_action": [job.pk for job in jobs[1:]]}
    answer = client.post(f"{LIST}{jobs[0].pk}/act/cancel/", follow=True)
    assert told(answer) == "Cancel: 1 job. 1 is running and was asked to stop."
    assert "asked to stop</span>" in answer.text
    answer = client.post(LIST, data, follow=True)
    assert told(answer) == "Cancel: 2 jobs. 1 is running and was asked to stop."
    assert answer.text.count("asked to stop</span>") == 2
    assert statuses() == {"running": 2, "cancelled": 1}


def test_a_job_that_is_run_now_has_been_due_since_now(as_user):
    job = rows.make("pending", run_at=rows.FUTURE)
    as_user("superuser").post(f"{LIST}{job.pk}/act/run_now/")
    [claim] = rows.claimed()
    assert claim.id == job.pk
    assert claim.waited < 60


def test_what_is_run_now_is_said_to_wait_for_a_worker(as_user):
    client = as_user("superuser")
    jobs = [rows.make("pending", run_at=rows.FUTURE) for _ in range(3)]
    answer = client.post(f"{LIST}{jobs[0].pk}/act/run_now/", follow=True)
    assert told(answer) == (
        "Run now: 1 job. It runs when a worker takes it, not while its queue is paused."
    )
    data = {"action": "run_now", "_selected_action": [job.pk for job in jobs]}
    assert told(client.post(LIST, data, follow=True)) == (
        "Run now: 2 jobs. They run when a worker takes them, not while their queue is paused. "
        f"1 was skipped: {REASONS['run_now']}"
    )


def test_each_job_of_a_selection_has_the_act_in_its_own_history(as_user):
    client = as_user("superuser")
    jobs = some_jobs()
    data = {"action": "cancel", "_selected_action": [job.pk for job in jobs.values()]}
    client.post(f"{LIST}?queue=default", data)
    cancelled = {str(jobs[name].pk) for name in ("pending", "delayed", "running")}
    assert set(LogEntry.objects.values_list("object_id", flat=True)) == cancelled
    page = client.get(f"{LIST}{jobs['pending'].pk}/history/")
    [entry] = page.context["action_list"]
    assert (entry.user.username, entry.object_repr) == ("superuser", str(jobs["pending"]))
    assert entry.change_message == "Cancel (queue: default)"


def test_of_many_jobs_one_entry_says_how_many(as_user, monkeypatch):
    monkeypatch.setattr(acts, "MOST_NOTED", 2)
    client = as_user("superuser")
    for many in (2, 3):
        LogEntry.objects.all().delete()
        jobs = [rows.make("running" if n else "pending") for n in range(many)]
        data = {"action": "cancel", "_selected_action": [job.pk for job in jobs]}
        answer = client.post(LIST, data, follow=True)
        assert told(answer).startswith(f"Cancel: {many} jobs. {many - 1} ")
        found = set(LogEntry.objects.values_list("object_repr", flat=True))
        assert found == ({"3 \N{MULTIPLICATION SIGN}"} if many == 3 else set(map(str, jobs)))


def test_an_act_on_more_jobs_takes_no_more_queries(as_user):
    client = as_user("superuser")
    costs = []
    for many in (2, 50):
        data = {
            "action": "cancel",
            "_selected_action": [rows.make("pending").pk for _ in range(many)],
        }
        with CaptureQueriesContext(connection) as queries:
            client.post(LIST, data)
        costs.append(len(queries))
    assert costs[0] == costs[1]


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
    assert told(answer) == "Retry: 5 jobs."
    assert statuses() == {"pending": 5}


def test_an_act_on_all_that_match_says_how_many_were_left(as_user):
    failed, _ = rows.make("failed"), rows.make("done")
    data = {"action": "retry", "_selected_action": [failed.pk], "select_across": "1"}
    answer = as_user("superuser").post(LIST, data, follow=True)
    assert told(answer) == f"Retry: 1 job. 1 was skipped: {REASONS['retry']}"


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


@pytest.mark.parametrize(("free", "keyed"), [(0, 4), (0, 9), (2, 2), (9, 4), (4, 1)])
def test_a_list_of_jobs_with_keys_promises_no_number_beyond_the_window(
    as_user, monkeypatch, free, keyed
):
    for module in (windows, lists):
        monkeypatch.setattr(module, "WINDOW", 3)
    for n in range(free + keyed):
        rows.make("pending", concurrency_key=f"key:{n}" if n < keyed else None)
    answer = as_user("superuser").get(f"{LIST}?status=pending")
    assert answer.context["cl"].result_count == 4
    assert "Select all jobs that match, listed or not" in answer.text
    assert "More than 3 jobs." in answer.text
    assert "More than 3 of these jobs have a concurrency key." not in answer.text


def test_a_list_of_jobs_with_keys_is_counted_up_to_the_window(as_user, monkeypatch):
    for module in (windows, lists):
        monkeypatch.setattr(module, "WINDOW", 3)
    for n in range(3):
        rows.make("pending", concurrency_key=f"key:{n}")
    answer = as_user("superuser").get(f"{LIST}?status=pending")
    assert answer.context["cl"].result_count == 3
    assert "More than" not in answer.text


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
    jobs = {**some_jobs(), "stopping": rows.make("running", cancel_requested_at=rows.AGO)}
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
        "pending": {"cancel", "delete"},
        "delayed": {"run_now", "cancel", "delete"},
        "running": {"cancel"},
        "stopping": set(),
        "done": {"delete"},
        "failed": {"retry", "delete"},
        "cancelled": {"retry", "delete"},
    }
