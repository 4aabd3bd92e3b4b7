"""The history of a job: its own acts, and those on many jobs of which it may have been one."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry

from django_pgjobs.admin import acts
from django_pgjobs.models import Job
from tests.db import rows

JOBS = "/admin/django_pgjobs/job/"


@pytest.fixture
def client(as_user, monkeypatch):
    """A superuser, to whom two jobs are many."""
    monkeypatch.setattr(acts, "MOST_NOTED", 1)
    return as_user("superuser")


def act_on_all(client, act: str, query: str) -> None:
    [first] = Job.objects.all()[:1]
    data = {"action": act, "_selected_action": [first.pk], "select_across": "1", "confirmed": "1"}
    assert client.post(f"{JOBS}?{query}", data).status_code == 302


def told(client, job: Job) -> list[str]:
    page = client.get(f"{JOBS}{job.pk}/history/")
    entries = page.context["of_many"]
    assert ("Acts on many jobs at once" in page.text) is bool(entries)
    for entry in entries:
        assert entry.change_message in page.text
        assert entry.object_repr in page.text
    return [entry.change_message for entry in entries]


def test_an_act_on_many_is_in_the_history_of_those_whose_filters_fit(client):
    columns = {"subject_type": "shop.order", "subject_id": "7"}
    made = {
        (kind, queue): [rows.make("failed", kind=kind, queue=queue, **columns) for _ in range(2)]
        for kind in ("a", "b")
        for queue in ("q", "r")
    }
    for query in ("status=failed&kind=a", "queue=r", "q=shop.order%3A7", "q=b"):
        act_on_all(client, "retry", query)
        Job.objects.update(status="failed", finished_at=rows.AGO)
    act_on_all(client, "cancel", "status=pending&finished=hour")  # of none, so it leaves no entry
    found = {name: told(client, jobs[0]) for name, jobs in made.items()}
    subject = "Retry (search: shop.order:7)"
    assert found == {
        ("a", "q"): [subject, "Retry (status: failed, kind: a)"],
        ("a", "r"): [subject, "Retry (queue: r)", "Retry (status: failed, kind: a)"],
        ("b", "q"): ["Retry (search: b)", subject],
        ("b", "r"): ["Retry (search: b)", subject, "Retry (queue: r)"],
    }


def test_an_act_before_a_job_was_there_is_not_in_its_history(client):
    for _ in range(2):
        old = rows.make("pending")
    act_on_all(client, "cancel", "")
    new = rows.make("pending")
    assert (told(client, old), told(client, new)) == (["Cancel"], [])


def test_who_is_there_was_not_deleted(client):
    for _ in range(2):
        rows.make("done")
    left = rows.make("running")
    act_on_all(client, "delete", "")
    assert LogEntry.objects.get().object_repr == "2 \N{MULTIPLICATION SIGN}"
    assert told(client, left) == []


def test_an_act_of_which_each_job_has_an_entry_is_told_once(client):
    job = rows.make("failed")
    client.post(f"{JOBS}{job.pk}/act/retry/")
    assert told(client, job) == []
    [entry] = client.get(f"{JOBS}{job.pk}/history/").context["action_list"]
    assert entry.change_message == "Retry"


def test_whoever_selects_all_that_a_page_shows_finds_them_one_by_one(as_user):
    client = as_user("superuser")
    jobs = [rows.make("failed") for _ in range(101)]
    page = client.get(f"{JOBS}?all=")
    assert len(page.context["cl"].result_list) == 101
    client.post(JOBS, {"action": "retry", "_selected_action": [job.pk for job in jobs]})
    assert LogEntry.objects.exclude(object_id=None).count() == 101
