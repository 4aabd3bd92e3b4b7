"""What no page sends: each gets an answer that says what is wrong, changes nothing, and is no error of ours."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connections

from django_pgjobs.models import Job
from tests.db import rows

JOBS = "/admin/django_pgjobs/job/"
UNSHOWN = (
    "The filter {} must be one of the choices beside the list, got {}. All filters were removed."
)


def told(answer) -> list[str]:
    return [str(message) for message in answer.context["messages"]]


@pytest.mark.parametrize("name", ["status", "kind", "queue", "finished"])
@pytest.mark.parametrize("value", ["\0", "x" * 201])
def test_a_filter_that_cannot_be_is_told_and_removed(as_user, name, value):
    job = rows.make("failed")
    answer = as_user("viewer").get(f"{JOBS}?{name}={quote(value)}", follow=True)
    assert told(answer) == [UNSHOWN.format(name, ascii(value[:80]))]
    assert list(answer.context["cl"].result_list) == [job]


@pytest.mark.parametrize("query", ["status=bogus", "kind=%00"])
def test_no_act_goes_on_with_a_filter_that_cannot_be(as_user, query):
    job = rows.make("failed")
    data = {"action": "retry", "_selected_action": [job.pk], "select_across": "1"}
    answer = as_user("superuser").post(f"{JOBS}?{query}", data, follow=True)
    assert "All filters were removed." in told(answer)[0]
    assert Job.objects.failed().get() == job


@pytest.mark.parametrize(
    "query", ["payload__password__startswith=a", "id__gt=3", "status__exact=done", "colour=red"]
)
def test_no_column_can_be_asked_for_by_its_name(as_user, query):
    rows.make("done", payload={"password": "abc"})
    assert as_user("superuser").get(f"{JOBS}?{query}").status_code == 400


@pytest.mark.parametrize(
    "text", ["\0", "a:\0", "9" * 5_000, "x" * 5_000, "shop.order:" + "x" * 5_000, "#", "-5", "²"]
)
def test_whatever_is_searched_for_is_answered(as_user, text):
    rows.make("done", subject_type="shop.order", subject_id="7")
    answer = as_user("viewer").get(f"{JOBS}?q={quote(text)}")
    assert answer.status_code == 200
    if "\0" in text:
        assert told(answer) == ["Null characters are not allowed."]
    else:
        assert not answer.context["cl"].result_list


@pytest.mark.parametrize("page", ["0", "-1", "3", "9" * 30, "abc", "", "1e3"])
def test_a_page_that_is_not_there_leads_to_one_that_is(as_user, page):
    job = rows.make("done")
    answer = as_user("viewer").get(f"{JOBS}?p={page}", follow=True)
    assert list(answer.context["cl"].result_list) == [job]


@pytest.mark.parametrize("pk", ["abc", "\0", "", "-1", "9" * 30])
@pytest.mark.parametrize("act", ["retry", "delete"])
def test_a_selection_that_is_none_is_told(as_user, act, pk):
    job = rows.make("failed")
    data = {"action": act, "_selected_action": [job.pk, pk], "confirmed": "1"}
    answer = as_user("superuser").post(JOBS, data, follow=True)
    expected = f"A selected job must be an id, got {pk!a}. Select it in the list."
    assert told(answer) == [expected]
    assert Job.objects.failed().get() == job


def test_all_or_not_all_must_be_said_clearly(as_user):
    jobs = [rows.make("failed") for _ in range(2)]
    data = {"action": "retry", "_selected_action": [jobs[0].pk], "select_across": "yes"}
    answer = as_user("superuser").post(JOBS, data, follow=True)
    assert told(answer) == ["select_across must be 0 or 1, got 'yes'. Select jobs in the list."]
    assert Job.objects.failed().count() == 2


@pytest.mark.parametrize("pk", ["0", "-1", "9" * 30, "abc", "%00", "_00"])
@pytest.mark.parametrize("page", ["change", "history", "act/retry"])
def test_a_job_that_is_not_there_is_told(as_user, page, pk):
    client = as_user("superuser")
    ask = client.post if page.startswith("act") else client.get
    answer = ask(f"{JOBS}{pk}/{page}/", follow=True)
    assert "doesn’t exist. Perhaps it was deleted?" in told(answer)[0]  # noqa: RUF001 -- Django's


def test_a_selected_job_that_is_deleted_meanwhile_is_counted_as_skipped(as_user):
    jobs = [rows.make("failed") for _ in range(2)]
    Job.objects.filter(pk=jobs[0].pk).delete()
    data = {"action": "retry", "_selected_action": [job.pk for job in jobs]}
    answer = as_user("superuser").post(JOBS, data, follow=True)
    assert told(answer)[0].startswith("Retry: 1 job. 1 was skipped")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("of", ["one", "a selection"])
def test_of_two_who_press_at_once_one_acts_and_the_other_is_told(transactional_db, as_user, of):
    job = rows.make("failed")
    clients = [as_user("superuser"), as_user("retrier")]
    at_once = threading.Barrier(2)
    address, data = {
        "one": (f"{JOBS}{job.pk}/act/retry/", {}),
        "a selection": (JOBS, {"action": "retry", "_selected_action": [job.pk]}),
    }[of]

    def press(client) -> str:
        try:
            at_once.wait(30)
            # The contexts of templates are told to every client there is, whichever asked.
            return client.post(address, data, follow=True).text
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(press, clients))
    assert sorted("Retry: 0 jobs. 1 was skipped" in answer for answer in answers) == [False, True]
    assert sorted("Retry: 1 job." in answer for answer in answers) == [False, True]
    assert LogEntry.objects.count() == 1
