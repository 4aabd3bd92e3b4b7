"""Pages and acts whose role of the database lacks something: what is told, and that nothing is a bare error."""

from __future__ import annotations

import re
from html import unescape
from typing import NamedTuple

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from django_pgjobs import Job, roles
from django_pgjobs.models import Queue, Schedule
from tests.app.jobs import noop
from tests.db import rows
from tests.roles import Role, each, sql

pytestmark = pytest.mark.django_db

ADMIN = "/admin/django_pgjobs/"
# Django's own tables, which each role of a web server needs.
DJANGOS = (
    "select on auth_user, django_content_type, django_migrations",
    "select, insert, update, delete on django_admin_log, django_session",
    "usage on sequence django_admin_log_id_seq",
)


@pytest.fixture
def client():
    user = User.objects.create_superuser("ada")
    client = Client()
    client.force_login(user)
    return client


class Scene(NamedTuple):
    """Addresses of pages; and acts: what is posted where, and the page that it leads back to."""

    pages: list[str]
    acts: list[tuple[str, dict[str, object], str]]


@pytest.fixture
def scene():
    rows.make_worker()
    keyed = noop.using(concurrency_key="k").enqueue().pk
    Queue.objects.create(name="default")
    failed = rows.make("failed", kind="noop").pk
    hourly = Schedule.objects.create(name="hourly", kind="noop", every="1:00:00").pk
    job, jobs, queues = f"{ADMIN}job/{failed}/", f"{ADMIN}job/?status=failed", f"{ADMIN}queue/"
    schedule, schedules = f"{ADMIN}schedule/{hourly}/", f"{ADMIN}schedule/"
    pages = [jobs, f"{ADMIN}job/", f"{ADMIN}job/figures/", f"{job}change/", f"{job}history/"]
    pages += [queues, f"{ADMIN}worker/", schedules, f"{schedule}change/", f"{schedule}delete/"]
    pages += [f"{ADMIN}job/{keyed}/change/"]
    made = {"name": "x", "kind": "noop", "payload": "{}", "cron": "0 3 * * *", "tz": "UTC"}
    chosen, switched = {"_selected_action": [failed]}, {"_selected_action": [hourly]}
    return Scene(
        pages,
        [
            (f"{schedules}add/", {**made, "missed": "latest", "enabled": "on"}, schedules),
            (schedules, {"action": "disable", **switched}, schedules),
            (schedules, {"action": "run_now", **switched}, schedules),
            (f"{schedule}delete/", {"post": "yes"}, f"{schedule}change/"),
            (queues + "switch/", {"name": "default", "pause": "1"}, queues),
            (queues + "switch/", {"name": "new", "pause": "1"}, queues),
            (f"{job}act/retry/", {}, f"{job}change/"),
            (f"{job}act/delete/", {}, f"{job}change/"),
            (jobs, {"action": "retry", **chosen}, jobs),
            (jobs, {"action": "delete", "confirmed": "1", **chosen}, jobs),
        ],
    )


def of_a_site(*parts: str, **options) -> Role:
    role = Role(*parts, **options)
    for grant in DJANGOS:
        sql(f"grant {grant} to {role.name}")
    return role


def text_of(html: str) -> str:
    return unescape(" ".join(re.sub("<[^>]+>", " ", html).split()))


def test_every_page_tells_a_role_with_nothing_what_it_lacks_and_which_command_prints_it(
    client, scene
):
    role = of_a_site()
    sql(f"grant usage on schema public to {role.name}")
    with role.assumed():
        for page in scene.pages:
            answer = client.get(page)
            assert answer.status_code == 503, page
            told = text_of(answer.text)
            assert f"The database refuses this to the role {role.name}" in told, page
            assert "permission denied for table django_pgjobs_" in told, page
            assert "SELECT on django_pgjobs_gate" in told, page
            assert f"python manage.py pgjobs grants --viewer {role.name}" in told, page


@pytest.mark.parametrize("privilege", each("viewer"), ids=str)
def test_a_page_names_the_one_grant_that_is_missing(client, scene, privilege):
    role = of_a_site("viewer")
    with role.without(privilege), role.assumed():
        answers = [client.get(page) for page in (ADMIN, *scene.pages)]
    refused = [answer for answer in answers if "pgjobs-denial" in answer.text]
    assert refused
    for answer in refused:
        assert f"The role lacks: {privilege} " in text_of(answer.text)
    for answer in answers[1:]:
        assert answer.status_code == (503 if answer in refused else 200)


def test_the_overview_is_told_in_its_place_and_the_page_of_the_app_goes_on(client, scene):
    role = of_a_site("viewer")
    with role.without(roles.Privilege("django_pgjobs_job", "select")), role.assumed():
        answer = client.get(ADMIN)
    assert answer.status_code == 200
    assert "The role lacks: SELECT on django_pgjobs_job" in text_of(answer.text)
    assert f"{ADMIN}queue/" in answer.text


def test_jobs_about_an_object_are_told_in_their_place(client, scene, monkeypatch):
    user = User.objects.get()
    rows.make("failed", subject_type="auth.user", subject_id=str(user.pk))
    from django.contrib import admin  # noqa: PLC0415 -- for this one

    from django_pgjobs.admin import SubjectJobsMixin  # noqa: PLC0415

    class Shown(SubjectJobsMixin, admin.ModelAdmin):
        pass

    shown = Shown(User, admin.site)
    with of_a_site().assumed():
        told = text_of(shown.subject_jobs(user))
        assert User.objects.count() == 1
    assert "permission denied for table django_pgjobs_job" in told
    assert "pgjobs grants --viewer" in told


def act(client, acts):
    """Do them, and yield what the pages say that they lead to."""
    for address, posted, _ in acts:
        yield address, text_of(client.post(address, posted, follow=True).text)


def test_every_act_of_a_viewer_is_refused_with_a_message_where_it_came_from(client, scene):
    role = of_a_site("viewer")
    before = list(Job.objects.values()), list(Schedule.objects.values())
    with role.assumed():
        for address, posted, back in scene.acts:
            answer = client.post(address, posted)
            assert (answer.status_code, answer.get("Location")) == (302, back), address
            told = text_of(client.get(back).text)
            assert "permission denied for" in told, address
            assert f"pgjobs grants --operator {role.name}" in told, address
    assert not LogEntry.objects.exists()
    assert (list(Job.objects.values()), list(Schedule.objects.values())) == before


@pytest.mark.parametrize("row_security", [False, True])
def test_an_operator_may_act(client, scene, row_security):
    with of_a_site("operator", row_security=row_security).assumed():
        for page in scene.pages:
            assert client.get(page).status_code == 200, page
        for address, told in act(client, scene.acts):
            assert "refuses" not in told, address
    assert Queue.objects.filter(paused_at__isnull=False).count() == 2
    assert Schedule.objects.get().name == "x"
    assert Job.objects.count() == 2, "one was deleted, and one enqueued"


@pytest.mark.parametrize("privilege", each("operator"), ids=str)
def test_an_operator_needs_each_of_its_grants(client, scene, privilege):
    role = of_a_site("operator")
    with role.without(privilege), role.assumed():
        told = [text_of(client.get(page).text) for page in scene.pages]
        told += [text for _, text in act(client, scene.acts)]
    missing = f"The role lacks: {privilege} As the owner"
    assert any(missing in text for text in told)


def test_what_row_security_hides_an_act_from_names_the_option(client, scene):
    role = of_a_site("operator")
    sql(*roles.enabling({"viewer": [role.name]}, role.place))
    with role.assumed():
        [(_, told)] = act(client, [one for one in scene.acts if one[1].get("name") == "new"])
    assert "policy for INSERT, UPDATE on django_pgjobs_queue" in told
    assert f"grants --operator {role.name} --row-security" in told


def test_tables_that_are_not_there_are_migrated(client):
    sql("alter table django_pgjobs_queue rename to django_pgjobs_elsewhere")
    answer = client.get(f"{ADMIN}queue/")
    assert answer.status_code == 503
    assert "run this: python manage.py migrate" in text_of(answer.text)


def test_another_error_stays_what_it_is(client, scene, monkeypatch):
    sql("alter table django_pgjobs_job rename column kind to sort")
    with pytest.raises(Exception, match=r"column .* does not exist"):
        client.get(f"{ADMIN}job/")


def test_a_page_in_a_transaction_of_its_request_is_told_too(client, scene, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)  # noqa: FBT003
    role = of_a_site()
    with role.assumed():
        assert client.get(f"{ADMIN}job/").status_code == 503


def test_the_refusal_is_in_the_log(client, scene, caplog):
    with of_a_site().assumed():
        client.get(f"{ADMIN}queue/")
    assert "The database refuses GET /admin/django_pgjobs/queue/: permission denied" in caplog.text
