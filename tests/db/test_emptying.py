"""What a test with real transactions leaves behind is gone before the next one, and nothing else is."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection

from django_pgjobs.models import Job, Queue, Worker

pytestmark = pytest.mark.django_db(transaction=True)


def flush():
    """As Django does after such a test."""
    call_command(
        "flush", verbosity=0, interactive=False, reset_sequences=False, inhibit_post_migrate=False
    )


def pages():
    with connection.cursor() as cursor:
        cursor.execute("select pg_relation_size('django_pgjobs_job')")
        return cursor.fetchone()[0]


def test_no_row_is_left_and_none_of_a_table_that_refers_to_one():
    user = User.objects.create(username="u")
    group = Group.objects.create(name="g")
    group.permissions.add(Permission.objects.first())
    user.groups.add(group)
    Job.objects.create(kind="x")
    Queue.objects.create(name="q")
    Worker.objects.create(host="h", pid=1, threads=1)
    flush()
    used = [m for m in (User, Group, Job, Queue, Worker, User.groups.through) if m.objects.exists()]
    assert used == []


def test_no_page_of_rows_that_were_deleted_is_left():
    Job.objects.create(kind="x")
    Job.objects.all().delete()
    assert pages() > 0
    flush()
    assert pages() == 0


def test_content_types_and_permissions_stay_as_they_are():
    def rows():
        return [*ContentType.objects.order_by("pk"), *Permission.objects.order_by("pk")]

    before = rows()
    flush()
    assert rows() == before
    assert before
