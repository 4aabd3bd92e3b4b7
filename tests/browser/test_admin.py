"""Staff at work in a real browser, under a strict Content-Security-Policy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.admin.utils import quote
from django.contrib.sessions.models import Session

from django_pgjobs.models import Job, Queue
from tests.app.probes import hold, record
from tests.browser import scene
from tests.browser.conftest import PASSWORD
from tests.browser.looks import keep, unreachable, unreadable
from tests.db import rows
from tests.waiting import eventually

pytestmark = [pytest.mark.newest, pytest.mark.django_db(transaction=True)]


def test_a_failed_job_is_found_opened_retried_and_seen_to_succeed(page, log_in, processes):
    rows.make("done", kind="noop")
    job = rows.make(
        "failed",
        kind=record.kind,
        payload={"key": "again"},
        max_attempts=1,
        last_error="builtins.ValueError: out of luck",
        errors=[{"attempt": 1, "error": "builtins.ValueError", "traceback": "out of luck"}],
    )
    log_in()
    page.get_by_role("link", name="Jobs", exact=True).last.click()
    page.get_by_role("link", name="failed", exact=True).click()
    page.get_by_role("link", name=str(job)).click()
    assert "out of luck" in page.locator("details[open] pre").inner_text()
    page.get_by_role("button", name="Retry").click()
    assert "Retry: 1 job." in page.locator(".messagelist").inner_text()
    processes.worker()
    eventually(lambda: Job.objects.done().filter(pk=job.pk).exists())
    page.reload()
    assert page.locator(".pgjobs-done").inner_text() == "done"


def test_a_selection_is_cancelled_by_the_keyboard_alone(page, log_in):
    jobs = [rows.make("pending") for _ in range(3)]
    log_in()
    page.goto("/admin/django_pgjobs/job/?status=pending")
    boxes = page.locator("input.action-select")
    for n in range(2):
        boxes.nth(n).focus()
        page.keyboard.press("Space")
    page.get_by_label("Action:").select_option("cancel")
    page.locator("button[name=index]").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".messagelist")
    assert "Cancel: 2 jobs." in page.locator(".messagelist").inner_text()
    assert Job.objects.cancelled().count() == 2
    assert Job.objects.pending().get() in jobs


def test_a_queue_is_paused_and_resumed(page, log_in, processes):
    hold.using(queue="mail").enqueue(key="x")
    log_in()
    page.goto("/admin/django_pgjobs/queue/")
    page.get_by_role("button", name="Pause mail").click()
    assert "paused" in page.get_by_role("row", name="mail").inner_text()
    assert Queue.objects.get().paused_by == "root"
    page.get_by_role("button", name="Resume mail").click()
    assert "open" in page.get_by_role("row", name="mail").inner_text()


def test_who_may_only_look_finds_no_button(page, log_in):
    job = rows.make("failed")
    log_in("view_job", "view_queue", "view_worker")
    page.goto("/admin/django_pgjobs/job/")
    assert page.locator("select[name=action]").count() == 0
    page.get_by_role("link", name=str(job)).click()
    assert page.locator(".pgjobs-act").count() == 0
    page.goto("/admin/django_pgjobs/queue/")
    assert page.locator(".pgjobs-act").count() == 0


@pytest.fixture
def at_work(log_in, kinds) -> scene.Scene:
    """A shop at work, and staff who look at it."""
    scene.declare(kinds)
    made = scene.set_up()
    log_in()
    return made


def visited(page, made: scene.Scene) -> Iterator[str]:
    """Go to every page of ours, and give its name."""
    pages = {
        "overview": "",
        "jobs": "job/",
        "failed-jobs": "job/?status=failed&finished=day",
        "pending-jobs-of-a-kind": "job/?status=pending&kind=send_receipt",
        "refused-filter": "job/?status=bogus",
        "failed-job": f"job/{made.failed.pk}/change/",
        "history": f"job/{made.failed.pk}/history/",
        "workers": "worker/",
        "worker": f"worker/{made.worker.pk}/change/",
        "queues": "queue/",
        "schedules": "schedule/",
        "schedule": f"schedule/{made.schedule.pk}/change/",
    }
    for name, address in pages.items():
        page.goto(f"/admin/django_pgjobs/{address}")
        if name == "overview":
            page.wait_for_selector(".u-legend")
        yield name
    page.goto("/admin/django_pgjobs/job/")
    page.locator("input.action-select").first.check()
    page.locator("select[name=action]").select_option("delete")
    page.locator("button[name=index]").click()
    page.wait_for_selector("input[name=confirmed]", state="attached")
    yield "delete-jobs"


def hard_to_read(page, made: scene.Scene, look: str, width: int) -> list[str]:
    """What is hard to read on any page of ours."""
    faults = []
    for name in visited(page, made):
        keep(page, f"{name}-{width}-{look}")
        faults += unreadable(page, width)
    return faults


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_fits_its_window_and_can_be_read(page, at_work, scheme, width):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    faults = hard_to_read(page, at_work, scheme, width)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("language", ["de", "es", "fr"])
@pytest.mark.parametrize("width", [390, 1280])
def test_long_words_fit_too(page, at_work, settings, language, width):
    settings.LANGUAGE_CODE = language
    page.set_viewport_size({"width": width, "height": 800})
    faults = hard_to_read(page, at_work, language, width)
    assert page.locator("html").get_attribute("lang") == language
    assert not faults, "\n".join(faults)


def test_pictures_of_the_admin(page, at_work, picture):
    heights = {"overview": 800, "jobs": 800, "failed-job": 1_180, "queues": 480, "schedules": 600}
    for name in visited(page, at_work):
        if name in heights:
            picture(name, heights[name])


def test_whatever_is_long_breaks(page, log_in):
    page.set_viewport_size({"width": 390, "height": 800})
    error = {"attempt": 1, "error": "ValueError", "message": "m", "traceback": "x" * 3_000}
    job = rows.make("failed", payload={"text": "y" * 3_000}, errors=[error])
    log_in()
    page.goto(f"/admin/django_pgjobs/job/{job.pk}/change/")
    assert unreadable(page, 390) == []


@pytest.fixture
def letters(at_work):
    """Queues of pgmq with messages and dead letters, short ones and long ones."""
    pytest.importorskip("pgmq")
    from django_pgjobs.pgmq import DeadLetters, Queue  # noqa: PLC0415 -- not without the wheel

    emails, dead = Queue("emails"), DeadLetters("emails_dead")
    for queue in (emails, dead.queue):
        queue.create()
    emails.send_batch([{"to": f"{n}@example.com", "password": "hunter2"} for n in range(60)])
    emails.send("y" * 3_000, headers={"trace": "x" * 300})
    for message in emails.read(qty=3):
        dead.bury(emails, message, "The address bounced: 550 no such user here")
    yield dead
    for queue in (emails, dead.queue):
        queue.drop()


def visited_of_pgmq(page, dead) -> Iterator[str]:
    """Go to every page of pgmq, and give its name."""
    pages = {
        "pgmq": "",
        "messages": f"{quote('emails')}/change/?after=10",
        "dead-letters": f"{quote(dead.name)}/change/",
        "dead-letter": f"{quote(dead.name)}/message/1/",
        "long-message": f"{quote('emails')}/message/61/",
    }
    for name, address in pages.items():
        page.goto(f"/admin/django_pgjobs_pgmq/queuerecord/{address}")
        yield name
    page.goto(f"/admin/django_pgjobs_pgmq/queuerecord/{pages['dead-letters']}")
    page.get_by_label("Select message 1", exact=True).check()
    page.get_by_role("button", name="Redrive selected messages").click()
    page.get_by_label("Into the queue").wait_for()
    yield "redrive"
    page.get_by_label("Into the queue").fill("nowhere")
    page.get_by_role("button", name="Redrive", exact=True).click()
    assert "There is no queue of this name." in page.locator(".errorlist").inner_text()
    yield "redrive-refused"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_of_pgmq_fits_can_be_read_and_reached(page, letters, scheme, width):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    faults = []
    for name in visited_of_pgmq(page, letters):
        keep(page, f"{name}-{width}-{scheme}")
        faults += unreadable(page, width) + unreachable(page)
    assert not faults, "\n".join(faults)


def test_a_dead_letter_is_found_and_redriven_without_scripts(page, letters):
    page.route("**/*.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
    page.goto("/admin/")
    page.get_by_role("link", name="Queues", exact=True).last.click()
    page.get_by_role("link", name="emails_dead").click()
    page.get_by_label("Select message 2", exact=True).check()
    page.get_by_role("button", name="Redrive selected messages").click()
    page.get_by_role("button", name="Redrive", exact=True).click()
    assert "Redrive: 1 message." in page.locator(".messagelist").inner_text()
    assert [letter.id for letter in letters.peek()] == [1, 3]


def test_every_control_is_reached_by_the_keyboard(page, at_work):
    faults = [fault for _ in visited(page, at_work) for fault in unreachable(page)]
    assert not faults, "\n".join(faults)


@pytest.fixture
def overview(page, log_in):
    """The overview in a tab whose complaints are expected, with a clock that the test moves."""
    log_in()
    tab = page.context.new_page()
    tab.clock.install()
    tab.goto("/admin/django_pgjobs/")
    tab.wait_for_selector(".u-legend")
    return tab


def test_the_chart_names_the_time_zone_that_it_is_drawn_in(overview):
    here = "new Intl.DateTimeFormat('en', {timeZoneName: 'short'}).format().split(' ').at(-1)"
    assert f"minute ({overview.evaluate(here)})" in overview.locator(".u-legend").inner_text()


def test_the_overview_says_that_the_session_has_ended_and_leads_back(overview, page):
    told = overview.locator(".pgjobs-stale")
    assert told.inner_text().strip() == ""
    first = rows.make("pending")
    overview.clock.run_for(10_000)
    overview.locator(".pgjobs-cards").get_by_role("link", name="1", exact=True).wait_for()
    Session.objects.all().delete()
    shown = overview.evaluate(
        "new Intl.DateTimeFormat('en-us', {dateStyle: 'short', timeStyle: 'medium'}).format(new Date())"
    )
    overview.clock.run_for(20_000)
    told.get_by_role("link").wait_for()
    assert (
        "You are logged out, or may no longer see jobs. These figures are of" in told.inner_text()
    )
    assert shown in told.inner_text()
    assert told.get_attribute("role") == "status"
    assert unreadable(overview, 1280) == []
    keep(overview, "overview-logged-out")
    told.get_by_role("link", name="Log in again").click()
    overview.get_by_label("Username").fill("root")
    overview.get_by_label("Password").fill(PASSWORD)
    overview.get_by_role("button", name="Log in").click()
    overview.wait_for_url("**/admin/django_pgjobs/")
    assert Job.objects.get() == first


@pytest.mark.parametrize("how", ["refused", "500", "nonsense"])
def test_the_overview_says_that_the_server_is_away_until_it_answers(overview, how):
    answers = {
        "refused": lambda route: route.abort(),
        "500": lambda route: route.fulfill(status=500),
        "nonsense": lambda route: route.fulfill(status=200, body="<html>"),
    }
    told = overview.locator(".pgjobs-stale")
    overview.route("**/figures/", answers[how])
    overview.clock.run_for(10_000)
    overview.get_by_text("The server gives no new figures.").wait_for()
    assert not told.get_by_role("link").count()
    overview.unroute("**/figures/")
    overview.clock.run_for(10_000)
    overview.get_by_text("The server gives no new figures.").wait_for(state="detached")
    assert told.inner_text().strip() == ""


def test_an_answer_that_does_not_come_is_not_waited_for(overview):
    overview.route("**/figures/", lambda route: None)
    overview.clock.run_for(20_000)
    overview.get_by_text("The server gives no new figures.").wait_for()
    overview.unroute("**/figures/")


@pytest.mark.parametrize("query", ["", "?status=failed", "?status=pending"])
def test_the_last_error_is_seen_in_full_beside_the_filters(page, log_in, query):
    page.set_viewport_size({"width": 1280, "height": 800})
    error = (
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='partner.example', port=443)"
    )
    for status in ("failed", "pending"):
        named = {"kind": "synchronise_the_stock", "queue": "partners", "priority": -50}
        rows.make(status, **named, last_error=error, attempts=12, max_attempts=25)
    log_in()
    page.goto(f"/admin/django_pgjobs/job/{query}")
    cell = page.locator(".field-error").first
    assert "HTTPSConnectionPool" in cell.inner_text()
    table = page.locator("#result_list").locator("..")
    assert table.evaluate("e => e.scrollWidth <= e.clientWidth"), query
    keep(page, f"last-error{query[1:].replace('=', '-')}")
