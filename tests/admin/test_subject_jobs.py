"""An object's own page shows the jobs about it, to those who may see jobs."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import path

from django_pgjobs import get_job
from django_pgjobs.admin import JobAdmin, SubjectJobsMixin
from django_pgjobs.models import Job
from tests.db import rows

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


site = admin.AdminSite()


class Groups(SubjectJobsMixin, GroupAdmin):
    class Media:
        js = ("own.js",)


class Users(SubjectJobsMixin, admin.ModelAdmin):
    fieldsets = ((None, {"fields": ("username",)}),)
    readonly_fields = ("username",)


site.register(Group, Groups)
site.register(User, Users)
site.register(Job, JobAdmin)
urlpatterns = [path("admin/", site.urls)]


@pytest.fixture
def group():
    return Group.objects.create(name="g")


def may(client_of, name, *more):
    client = client_of(name)
    user = User.objects.get(username=name)
    user.user_permissions.add(*Permission.objects.filter(codename__in=more))
    return client


def page(client, obj):
    answer = client.get(f"/admin/auth/{obj._meta.model_name}/{obj.pk}/change/")
    assert answer.status_code == 200
    return answer.text


def test_the_newest_jobs_are_shown_with_a_way_to_all(as_user, group):
    about = get_job("noop").using(subject=group)
    ids = [about.enqueue().id for _ in range(12)]
    rows.make("failed", subject_type="auth.group", subject_id=str(group.pk), last_error="<b>oh")
    other = get_job("noop").using(subject=Group.objects.create(name="other")).enqueue()

    text = page(as_user("superuser"), group)

    shown = [pk for pk in [*ids, other.id] if f"/admin/django_pgjobs/job/{pk}/change/" in text]
    assert shown == ids[3:]
    assert "&lt;b&gt;oh" in text
    assert "More than 10 jobs." in text
    assert f"?q=auth.group%3A{group.pk}" in text
    assert "django_pgjobs/admin.css" in text
    assert "own.js" in text


def test_an_object_without_jobs_and_one_that_is_not_made_yet_have_their_pages(as_user, group):
    client = as_user("superuser")

    assert "subject_jobs" in page(client, group)
    assert "subject_jobs" not in client.get("/admin/auth/group/add/").text
    assert page(client, User.objects.get()).count("field-username") == 1


def test_who_may_not_see_jobs_sees_none_of_them(as_user, group):
    get_job("noop").using(subject=group).enqueue()

    for name, permissions, sees in (
        ("nobody", ["change_group"], False),
        ("pauser", ["view_group"], False),
        ("viewer", ["view_group"], True),
        ("retrier", ["change_group"], True),
    ):
        text = page(may(as_user, name, *permissions), group)
        assert ("noop #" in text) == ("subject_jobs" in text) == sees, name


def test_an_object_can_be_saved_though_its_jobs_cannot(as_user, group):
    get_job("noop").using(subject=group).enqueue()
    client = as_user("superuser")

    client.post(f"/admin/auth/group/{group.pk}/change/", {"name": "renamed", "subject_jobs": "x"})

    group.refresh_from_db()
    assert group.name == "renamed"


def test_the_jobs_cost_one_query(as_user, group):
    get_job("noop").using(subject=group).enqueue_many([{}] * 20)

    with CaptureQueriesContext(connection) as queries:
        Groups(Group, site).subject_jobs(group)
    assert len([query for query in queries if "SAVEPOINT" not in query["sql"]]) == 1
