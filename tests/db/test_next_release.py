"""This release's code works on the tables of the next one."""

from __future__ import annotations

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models.functions import Now

from django_pgjobs import Fixed, Limit, Rate, Snooze, Unique, every, job, schedules
from django_pgjobs.models import Job, Queue, Schedule, Worker
from django_pgjobs.testing import drain
from tests import next_release
from tests.app.jobs import add, boom, noop
from tests.db import rows

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def later_tables(transactional_db):
    with next_release.migrated():
        yield


def settled() -> dict[int, str]:
    drain()
    return dict(Job.objects.values_list("id", "status"))


def test_the_tables_are_those_of_the_next_release():
    job = noop.enqueue()
    with connection.cursor() as cursor:
        cursor.execute("select note, weight, labels, seen_at is not null from django_pgjobs_job")
        assert cursor.fetchall() == [(None, 1, "[]", True)]
    assert Job.objects.get() == job


def test_every_way_to_enqueue(kinds):
    unique = job(kind="once", unique=Unique())(lambda i: None)
    keyed = job(kind="keyed", concurrency=Limit(1), rate=Rate(100, per=1))(lambda i: None)
    with transaction.atomic():
        made = [
            noop.enqueue(),
            noop.using(priority=5, run_at=rows.AGO, subject=rows.make_worker()).enqueue(),
            unique.enqueue(1),
            keyed.enqueue(1),
        ]
        ids = [one.pk for one in made]
        ids += noop.enqueue_many([{"i": 1}, {"i": 2}])
        ids += unique.enqueue_many([{"i": 2}, {"i": 3}])
    with connection.cursor() as cursor:
        cursor.execute("insert into django_pgjobs_job (kind) values ('noop')")
    assert set(settled().values()) == {"done"}
    assert Job.objects.filter(pk__in=ids).count() == len(ids)


@pytest.mark.parametrize("conflict", ["skip", "replace"])
@pytest.mark.parametrize("until", ["start", "finished"])
def test_a_unique_job_that_is_there_already(kinds, conflict, until):
    once = job(kind="once", unique=Unique(until=until, conflict=conflict))(lambda i: None)
    first = once.enqueue(1)
    assert once.enqueue(1).pk == first.pk
    assert settled() == {first.pk: "done"}


def test_every_outcome(kinds):
    def snooze():
        raise Snooze(60)

    later = job(kind="later")(snooze)
    again = job(kind="tried_again", retry=Fixed([60]))(lambda: 1 / 0)
    ended = {
        add.enqueue(1, b=2).pk: "done",
        boom.using(max_attempts=1).enqueue().pk: "failed",
        later.enqueue().pk: "pending",
        again.enqueue().pk: "pending",
    }
    assert settled() == ended
    failed = Job.objects.failed().get()
    assert failed.retry() == 1
    assert failed.cancel() == 1
    assert Job.objects.delayed().reschedule(rows.FUTURE) == 2
    assert settled() == ended | {failed.pk: "cancelled"}


def test_upkeep():
    dead = rows.make_worker(heartbeat_at=rows.AGO)
    lost = rows.make("running", locked_by=dead.pk)
    old = rows.make("done")
    call_command("reapjobs", verbosity=0)
    assert Job.objects.filter(pk=lost.pk).pending().exists()
    assert not Job.objects.filter(pk=old.pk).exists()
    assert Worker.objects.get(pk=dead.pk).died_at


def test_a_schedule_fires(kinds):
    job(kind="often", schedule=every(hours=1))(lambda: None)
    for _ in range(2):  # made, and found again
        schedules.synchronise("default")
    Schedule.objects.update(next_at=rows.AGO)
    assert schedules.tick("default") == (1, [])
    assert Job.objects.get().kind == "often"


def test_every_question_of_the_command(capsys):
    one = boom.using(max_attempts=1).enqueue()
    settled()
    Queue.objects.create(name="mail", paused_at=Now())
    for arguments in (
        *(["stats"], ["list"], ["show", str(one.pk)], ["explain", str(one.pk)], ["check"]),
        *(["pause", "mail"], ["resume", "mail"], ["retry", str(one.pk)], ["cancel", str(one.pk)]),
    ):
        call_command("pgjobs", *arguments)
    assert "cancelled" in capsys.readouterr().out.lower()


def test_the_pages_of_the_admin(admin_client):
    one = noop.enqueue()
    rows.make_worker()
    Schedule.objects.create(name="s", kind="noop", cron="0 3 * * *")
    for path in ("", "job/", f"job/{one.pk}/change/", "worker/", "queue/", "schedule/"):
        assert admin_client.get(f"/admin/django_pgjobs/{path}").status_code == 200, path


def test_nothing_is_missing_where_there_is_more():
    assert run_checks(databases=["default"]) == []
