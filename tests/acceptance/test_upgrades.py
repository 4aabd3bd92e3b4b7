"""Old code on the new tables and new code on the old ones, with processes that live through the change."""

from __future__ import annotations

import datetime

import pytest
from django.core.management import call_command
from django.db import connection
from psycopg import errors

from django_pgjobs import functions, outages
from django_pgjobs.models import Job, Schedule
from tests import next_release
from tests.app.jobs import add, boom, noop
from tests.app.probes import hold
from tests.db import rows
from tests.processes import FAST
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

NEW_CODE = """
import datetime
from django.db import transaction
from django_pgjobs import Unique, enqueue, get_job
from django_pgjobs.models import Job
noop = get_job("noop")
with transaction.atomic():
    enqueue("noop", i=1)
    noop.using(delay=3600).enqueue(2)
    noop.enqueue_many([{"i": 3}, {"i": 4}])
    once = noop.using(unique=Unique(), queue="later")
    assert once.enqueue(5).pk == once.enqueue(5).pk
    assert once.enqueue(5).existed
    once.enqueue_many([{"i": 6}])
    get_job("boom").using(max_attempts=1).enqueue()
noop.enqueue().wait(20)
Job.objects.filter(queue="later").cancel()
Job.objects.cancelled().retry()
Job.objects.delayed().reschedule(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))
from tests.app.tasks import tell_attempt
result = tell_attempt.enqueue(7)
Job.objects.defer(*Job.added).get(pk=result.id).wait(20)
result.refresh()
assert result.return_value == [result.id, 1, 7], result.errors
assert tell_attempt.get_result(result.id) == result
"""


@pytest.fixture
def old_tables_at_the_end(transactional_db):
    yield
    next_release.migrate(next_release.FIRST)


def all_settled() -> bool:
    return not Job.objects.filter(status__in=["pending", "running"]).exists()


def one_of_each() -> None:
    """What a worker does most, each of it once."""
    noop.enqueue()
    noop.enqueue_many([{"i": n} for n in range(20)])
    add.enqueue(1, b=2)
    boom.using(max_attempts=1).enqueue()
    with connection.cursor() as cursor:
        cursor.execute("insert into django_pgjobs_job (kind) values ('noop')")


def test_a_worker_goes_on_while_the_tables_are_migrated_and_back(processes, old_tables_at_the_end):
    supervisor = processes.supervisor("--threads", "2")
    children = eventually(lambda: supervisor.children)
    for key, target in enumerate((next_release.FIRST, next_release.LAST, next_release.FIRST)):
        held = hold.enqueue(str(key))
        eventually(lambda key=key: processes.ledger.starts(str(key)))
        next_release.migrate(target)  # with a job that runs
        one_of_each()
        processes.open_gate(key)
        eventually(all_settled)
        held.refresh_from_db()
        assert held.status == "done"
    assert Job.objects.failed().count() == 3
    assert supervisor.children == children
    assert "refuse" not in supervisor.output
    assert "migrat" not in supervisor.output
    assert supervisor.stop() == 0


def test_new_code_works_on_the_old_tables_and_says_what_is_to_be_migrated(
    processes, old_tables_at_the_end
):
    Schedule.objects.create(
        name="s", kind="noop", every=datetime.timedelta(seconds=1), since=rows.AGO
    )
    one_of_each()
    supervisor = processes.supervisor(DJANGO_SETTINGS_MODULE=next_release.SETTINGS)
    producer = processes.start(
        "shell", "-c", NEW_CODE, DJANGO_SETTINGS_MODULE=next_release.SETTINGS
    )
    assert producer.wait(60) == 0, producer.output
    eventually(all_settled)
    eventually(lambda: Job.objects.filter(meta__schedule="s").exists(), within=20)
    children = supervisor.children
    said = f"0007_schedule, {next_release.LAST} unapplied. Run manage.py migrate."
    eventually(lambda: said in supervisor.output)
    lost = rows.make("running", locked_by=rows.make_worker(heartbeat_at=rows.AGO).pk)
    for command, said_too in {
        ("check", "--database", "default"): "pgjobs.W010",
        ("migrate",): f"Applying django_pgjobs.{next_release.LAST}... OK",
    }.items():
        process = processes.start(*command, DJANGO_SETTINGS_MODULE=next_release.SETTINGS)
        assert process.wait(60) == 0, process.output
        assert said_too in process.output
    Schedule.objects.all().delete()
    one_of_each()
    eventually(all_settled, within=20)  # what was lost is reaped
    assert Job.objects.filter(pk=lost.pk).values_list("status").get() != ("running",)
    assert supervisor.children == children
    assert supervisor.output.count(said) == 1
    assert "refuse" not in supervisor.output, supervisor.output
    assert supervisor.stop() == 0


def test_a_worker_reaps_before_its_functions_are_there_and_afterwards(processes, transactional_db):
    def lose_a_job() -> Job:
        return rows.make("running", locked_by=rows.make_worker(heartbeat_at=rows.AGO).pk)

    def is_reaped(job: Job) -> bool:
        job.refresh_from_db()
        return [entry["error"] for entry in job.errors] == ["WorkerLost"]

    try:
        call_command("migrate", "django_pgjobs", "0001_initial", verbosity=0)
        supervisor = processes.supervisor(pgjobs=FAST)
        eventually(lambda: f"{functions.MIGRATION} unapplied" in supervisor.output)
        children = supervisor.children
        before = lose_a_job()
        eventually(lambda: is_reaped(before), within=20)
    finally:
        call_command("migrate", "django_pgjobs", verbosity=0)
    after = lose_a_job()
    eventually(lambda: is_reaped(after), within=20)
    assert supervisor.children == children
    assert "refuse" not in supervisor.output
    assert supervisor.stop() == 0


def test_a_worker_whose_tables_lack_a_column_waits_for_migrate_and_says_so(processes):
    supervisor = processes.supervisor()
    noop.enqueue()
    eventually(all_settled)
    children = supervisor.children
    with connection.cursor() as cursor:
        cursor.execute("alter table django_pgjobs_job rename column claims to renamed")
    try:
        with connection.cursor() as cursor:
            cursor.execute("insert into django_pgjobs_job (kind) values ('noop')")
        eventually(lambda: "does not exist. Run manage.py migrate." in supervisor.output)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("alter table django_pgjobs_job rename column renamed to claims")
    eventually(all_settled, within=20)
    assert supervisor.children == children
    assert supervisor.stop() == 0


def test_a_refusal_for_want_of_a_column_is_waited_for_without_limit(monkeypatch):
    monkeypatch.setattr(outages, "_PATIENCE", -1.0)
    outage = outages.Outage()
    outage.note(errors.UndefinedColumn("column x does not exist"))
    assert not outage.hopeless
    outage.note(errors.InsufficientPrivilege("permission denied"))
    assert outage.hopeless
