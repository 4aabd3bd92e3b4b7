"""Jobs in a database of their own: everything goes where the routers write, and nothing reads a replica."""

from __future__ import annotations

import datetime
import json
import os

import pytest
from django.core.management import call_command
from django.db import connections
from django.db.models.functions import Now

from django_pgjobs import Unique, every, job, schedules
from django_pgjobs.models import Job, Queue, Schedule, Worker
from django_pgjobs.testing import drain
from tests.app.jobs import add, boom, noop
from tests.db import rows
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

OURS = "django_pgjobs"


class JobsRouter:
    """As the how-to guide has it, but for reads, which it sends to the default: as to a replica that is late."""

    def db_for_read(self, model, **hints):
        return "default" if model._meta.app_label == OURS else None

    def db_for_write(self, model, **hints):
        return "other" if model._meta.app_label == OURS else None

    def allow_relation(self, one, other, **hints):
        return True


def refuse_ours(execute, sql, params, many, context):
    assert OURS not in sql, f"The default database must not be asked for jobs, got {sql}"
    return execute(sql, params, many, context)


@pytest.fixture(autouse=True)
def elsewhere(settings, transactional_db):
    settings.DATABASE_ROUTERS = [JobsRouter()]
    with connections["default"].execute_wrapper(refuse_ours):
        yield


def jobs():
    return Job.objects.using("other")


def test_enqueue_and_the_verbs(kinds):
    once = job(kind="once", unique=Unique())(lambda: None)
    made = [noop.enqueue(), once.enqueue(), noop.using(concurrency_key="k").enqueue()]
    noop.enqueue_many([{}, {}])
    once.enqueue_many([{}])
    assert once.enqueue().existed
    assert jobs().count() == 5
    assert made[0].cancel() == 1
    assert made[0].retry() == 1
    assert made[0].reschedule(rows.FUTURE) == 1
    assert made[0].explain().answer == "delayed"
    assert jobs().delayed().count() == 1


def test_running_them():
    add.enqueue(1)
    boom.using(max_attempts=1).enqueue()
    drain()
    assert dict(jobs().values_list("kind", "status")) == {"add": "done", "boom": "failed"}


def test_schedules(kinds):
    job(kind="often", schedule=every(hours=1))(lambda: None)
    for _ in range(2):
        schedules.synchronise("other")
    Schedule.objects.using("other").update(next_at=rows.AGO)
    drain()
    schedules.tick("other")
    assert jobs().get().kind == "often"


def test_the_commands(capsys):
    one = noop.enqueue()
    Worker.objects.using("other").create(host="h", pid=1, threads=1, heartbeat_at=rows.AGO)
    call_command("reapjobs", "--dry-run")
    call_command("reapjobs")
    assert capsys.readouterr().out.count("the death of 1 worker") == 2
    for arguments in (
        *(["stats"], ["list"], ["show", str(one.pk)], ["explain", str(one.pk)], ["check"]),
        *(["pause", "mail"], ["resume", "mail"], ["cancel", str(one.pk)], ["retry", str(one.pk)]),
    ):
        call_command("pgjobs", *arguments)
    assert jobs().pending().count() == 1
    assert Queue.objects.using("other").filter(paused_at=None).count() == 1
    call_command("check", databases=["default", "other"])


def test_the_pages_of_the_admin(admin_client):
    one = noop.enqueue()
    Worker.objects.using("other").create(host="h", pid=1, threads=1)
    Queue.objects.using("other").create(name="mail", paused_at=Now())
    schedule = Schedule.objects.using("other").create(name="s", kind="noop", cron="0 3 * * *")
    admin = "/admin/django_pgjobs/"
    for path in (
        *("", "job/", f"job/{one.pk}/change/", "worker/", "queue/"),
        *("schedule/", f"schedule/{schedule.pk}/change/", "schedule/add/"),
    ):
        assert admin_client.get(admin + path).status_code == 200, path
    many = {"action": "cancel", "_selected_action": [one.pk], "confirmed": "1"}
    assert admin_client.post(f"{admin}job/", many, follow=True).status_code == 200
    assert jobs().cancelled().count() == 1
    assert admin_client.post(f"{admin}job/{one.pk}/act/retry/").status_code == 302
    assert jobs().pending().count() == 1


def test_a_worker_and_its_supervisor(processes):
    """The processes have the tests' database as "other", and none at all as "default"."""
    addresses = {name: connections["other"].settings_dict[name] for name in ("NAME", "PORT")}
    supervisor = processes.supervisor(
        DJANGO_SETTINGS_MODULE="tests.settings_elsewhere",
        PGJOBS_TEST_OTHER=json.dumps(addresses),
        PATH=os.environ["PATH"],
    )
    Schedule.objects.using("other").create(
        name="s", kind="noop", every=datetime.timedelta(seconds=1), since=rows.AGO, missed="skip"
    )
    for n in range(20):
        add.enqueue(n)
    eventually(lambda: jobs().done().filter(kind="add").count() == 20, within=20)
    eventually(lambda: jobs().filter(meta__schedule="s").exists(), within=20)
    assert "refuse" not in supervisor.output
    assert supervisor.stop() == 0
