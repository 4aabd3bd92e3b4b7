"""What the page of a job says of its progress, and of an attempt that stopped."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from tests.db.rows import make

pytestmark = pytest.mark.django_db


def page(client, job):
    return client.get(reverse("admin:django_pgjobs_job_change", args=[job.pk])).content.decode()


def said(**other):
    progress = {
        "fraction": 0.415,
        "text": "<b>3 of 7</b>",
        "attempt": 1,
        "at": "2026-01-02T03:04:05Z",
    }
    return {"progress": {**progress, **other}}


def test_it_is_shown_with_its_text_and_time(admin_client):
    shown = page(admin_client, make("running", meta=said()))
    assert re.search(r"42 %, &lt;b&gt;3 of 7&lt;/b&gt;, Jan\. \d, 2026, \d+:04 [ap]\.m\.", shown)
    assert "earlier attempt" not in shown


def test_that_of_an_earlier_attempt_is_called_so(admin_client):
    shown = page(admin_client, make("pending", attempts=2, meta=said()))
    assert re.search(r"m\., in an earlier attempt", shown)


@pytest.mark.parametrize(
    "progress",
    [
        None,
        "half",
        {},
        {"fraction": "half"},
        {"fraction": None},
        {"fraction": 10**400},
        {"fraction": True, "at": 5},
    ],
)
def test_whatever_plain_sql_has_put_there_the_page_is_shown(admin_client, progress):
    assert "progress" in page(admin_client, make("running", meta={"progress": progress})).lower()


def test_an_attempt_that_stopped_has_not_failed(admin_client):
    error = {"attempt": 1, "at": "2026-01-02T03:04:05Z"}
    stopped = {**error, "error": "django_pgjobs.exceptions.JobCancelled"}
    shown = page(admin_client, make("cancelled", errors=[stopped]))
    assert "Attempt 1 stopped" in shown
    assert "Attempt 1 failed" not in shown
