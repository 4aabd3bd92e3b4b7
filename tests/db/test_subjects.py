"""The model instance that a job is about: how it is named, and how its jobs are found again."""

from __future__ import annotations

import datetime
import uuid

import pytest
from django.contrib.auth.models import Group, User
from django.db import models
from django.test.utils import isolate_apps

from django_pgjobs import InvalidOption, get_job
from django_pgjobs.models import Job
from django_pgjobs.subjects import identify

pytestmark = pytest.mark.django_db


class Staff(User):
    class Meta:
        proxy = True
        app_label = "auth"


def about(subject):
    return get_job("noop").using(subject=subject)


def test_the_jobs_about_an_instance_are_found_again_and_no_others():
    first, second = (Group.objects.create(name=name) for name in "ab")
    ids = {about(first).enqueue().id, *about(first).enqueue_many([{}, {}])}
    about(second).enqueue()
    about(User.objects.create(pk=first.pk, username="u")).enqueue()

    assert set(Job.objects.for_subject(first).values_list("id", flat=True)) == ids
    assert Job.objects.failed().for_subject(first).count() == 0
    assert Job.objects.for_subject(first).cancel() == 3


def test_a_proxy_is_what_it_stands_for():
    user = User.objects.create(username="u")
    staff = Staff.objects.get()

    assert about(staff).enqueue().subject_type == "auth.user"
    assert Job.objects.for_subject(user).get() == Job.objects.for_subject(staff).get()


def test_the_jobs_about_an_instance_outlive_it():
    group = Group.objects.create(name="g")
    pk = group.pk
    made = about(group).enqueue()
    group.delete()

    assert Job.objects.for_subject(Group(pk=pk)).get() == made
    with pytest.raises(InvalidOption, match=r"^subject must be a saved model instance"):
        Job.objects.for_subject(group)


@isolate_apps("tests.app")
def test_keys_are_named_by_the_value_that_the_database_knows():
    class OfTests:
        app_label = "app"

    class Parcel(models.Model):  # noqa: DJ008 -- never shown
        id = models.UUIDField(primary_key=True)
        Meta = OfTests

    class Letter(Parcel):  # noqa: DJ008 -- likewise
        Meta = OfTests

    class Line(models.Model):  # noqa: DJ008 -- likewise
        pk = models.CompositePrimaryKey("parcel", "day")
        parcel = models.ForeignKey(Parcel, models.CASCADE)
        day = models.DateField()
        Meta = OfTests

    key = uuid.UUID(int=10)
    day = datetime.date(2026, 1, 2)

    assert identify(Parcel(pk=key)) == identify(Parcel(pk=key.hex)) == ("app.parcel", str(key))
    # A model of its own, which a parcel is not.
    assert identify(Letter(pk=key)) == ("app.letter", str(key))
    assert identify(Line(parcel_id=key, day=day)) == ("app.line", f'["{key}", "2026-01-02"]')
    with pytest.raises(InvalidOption, match="at most 200 characters"):
        identify(User(pk=10**200))


def test_a_key_that_its_field_cannot_hold_is_refused():
    with pytest.raises(
        InvalidOption, match=r"^subject must have a primary key of its own type, got"
    ):
        Job.objects.for_subject(Group(pk="abc"))


def test_an_instance_without_a_key_is_to_be_saved_and_what_is_none_to_be_passed():
    for unsaved in (Group(), Group(pk=1)):
        with pytest.raises(InvalidOption, match=r"Save it first\.$"):
            about(unsaved)
    with pytest.raises(InvalidOption, match=r"Pass the instance itself\.$"):
        about(7)


@pytest.mark.parametrize("bad", [User, "auth.user:1", 7, User(username="u"), Group(pk=1)])
def test_what_is_no_saved_instance_is_refused(bad, django_assert_num_queries):
    with django_assert_num_queries(0), pytest.raises(InvalidOption, match=r"^subject must be a"):
        about(bad)
