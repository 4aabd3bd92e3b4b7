"""Identifiers beyond what 32 bits hold: nothing runs out, and nothing is cut on its way."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models import Max, Min

from django_pgjobs import Limit, Rate, Unique, job, schedules
from django_pgjobs.models import Job, Queue, Schedule, Worker
from django_pgjobs.testing import drain
from tests.app.jobs import add, boom, noop
from tests.db import rows
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

BEYOND = 2**31 + 10


def sequences() -> dict[str, int]:
    """Of our tables: where each sequence is."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select sequencename, last_value, data_type::text, max_value from pg_sequences "
            "where sequencename like 'django\\_pgjobs\\_%'"
        )
        found = cursor.fetchall()
    assert {(kind, most) for *_, kind, most in found} == {("bigint", 2**63 - 1)}
    return {name: value for name, value, *_ in found}


@pytest.fixture(autouse=True)
def beyond(transactional_db):
    """Every sequence beyond 32 bits."""
    with connection.cursor() as cursor:
        for name in sequences():
            cursor.execute("select setval(%s::regclass, %s)", [name, BEYOND])
    yield
    with connection.cursor() as cursor:
        for name in sequences():
            cursor.execute("select setval(%s::regclass, 1, false)", [name])


def test_a_worker_settles_retries_limits_and_prunes_jobs_of_large_ids(processes):
    first = noop.enqueue()
    many = noop.enqueue_many([{}] * 50)
    failed = boom.using(max_attempts=1).enqueue()
    keyed = add.using(concurrency_key="k").enqueue(1)
    delayed = noop.using(delay=3600).enqueue()
    supervisor = processes.supervisor("--threads", "2")
    eventually(lambda: not Job.objects.due().exists() and not Job.objects.running().exists())
    assert Job.objects.done().count() == 1 + len(many) + 1
    assert supervisor.worker.pk > BEYOND
    for one in (first, failed, keyed, delayed):
        one.refresh_from_db()
        assert one.pk > BEYOND
    assert failed.errors[0]["worker"].endswith(f"#{supervisor.worker.pk}")
    assert failed.retry() == 1
    eventually(lambda: Job.objects.failed().filter(attempts=2).exists())
    assert delayed.cancel() == 1
    worker = supervisor.worker
    eventually(lambda: Worker.objects.get(pk=worker.pk).heartbeat_at > worker.heartbeat_at)
    assert "refuse" not in supervisor.output
    assert supervisor.stop() == 0


def test_limits_rates_and_schedules(kinds):
    strict = job(kind="strict", concurrency=Limit(1), rate=Rate(100, per=1))(lambda i: None)
    strict.enqueue_many([{"i": n} for n in range(3)])
    schedule = Schedule.objects.create(name="s", kind="noop", cron="* * * * *", next_at=rows.AGO)
    assert schedules.tick("default") == (1, [])
    drain()
    assert Job.objects.done().count() == 4
    assert schedule.pk > BEYOND


def test_the_dead_are_reaped_and_the_finished_pruned():
    dead = rows.make_worker(heartbeat_at=rows.AGO)
    lost = rows.make("running", locked_by=dead.pk)
    old = rows.make("done")
    assert min(dead.pk, lost.pk, old.pk) > BEYOND
    call_command("reapjobs", verbosity=0)
    assert Worker.objects.get(pk=dead.pk).died_at
    assert list(Job.objects.values_list("id", "status")) == [(lost.pk, "pending")]


def test_questions_and_pages(admin_client, capsys):
    one = noop.enqueue()
    for verb in ("show", "explain", "cancel", "retry"):
        call_command("pgjobs", verb, str(one.pk))
    assert str(one.pk) in capsys.readouterr().out
    assert str(one.pk) in admin_client.get("/admin/django_pgjobs/job/").content.decode()
    assert admin_client.get(f"/admin/django_pgjobs/job/{one.pk}/change/").status_code == 200


def test_a_job_takes_one_number_and_what_makes_none_takes_few(kinds):
    once = job(kind="once", unique=Unique())(lambda: None)
    before = sequences()
    noop.enqueue_many([{}] * 1_000)
    call_command("pgjobs", "pause", "mail")
    call_command("pgjobs", "resume", "mail")
    drain()
    after = sequences()
    moved = {name: after[name] - value for name, value in before.items() if after[name] != value}
    assert moved["django_pgjobs_job_id_seq"] == 1_000
    assert sum(moved.values()) <= 1_000 + 2, "a worker's row, if anything"
    ids = Job.objects.aggregate(Min("id"), Max("id"))
    assert ids["id__max"] - ids["id__min"] == 999
    once.enqueue()
    assert not Queue.objects.filter(paused_at__isnull=False).exists()


@pytest.mark.parametrize("model", [Job, Worker, Schedule])
def test_the_largest_number_is_taken_and_found_again(model):
    most = 2**63 - 1
    make = {
        Job: lambda: rows.make(pk=most),
        Worker: lambda: rows.make_worker(pk=most),
        Schedule: lambda: Schedule.objects.create(pk=most, name="s", kind="noop", cron="* * * * *"),
    }
    assert make[model]().pk == model.objects.get().pk == most
