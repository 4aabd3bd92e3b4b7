"""Children that die: the supervisor says why, charges what had started, and goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from django.db import connection

from django_pgjobs.models import Job, Worker
from tests import audit
from tests.app.probes import allocate, hold, leave, record
from tests.processes import no_back_off
from tests.waiting import eventually

pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("audited")]


def all_final() -> bool:
    no_back_off()
    return not Job.objects.filter(status__in=["pending", "running"]).exists()


def losses(job: Job) -> list[tuple[int, str]]:
    job.refresh_from_db()
    return [(e["attempt"], e["message"]) for e in job.errors if e["error"] == "WorkerLost"]


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("kill", "signal 9"),
        ("os._exit", "exited with status 3"),
        ("os._exit 0", "exited with status 0"),
    ],
)
def test_a_death_is_known_at_once_by_its_reason_and_another_child_goes_on(processes, how, reason):
    supervisor = processes.supervisor()  # a lease lasts for 20 s
    first = supervisor.worker.pk
    job = leave.using(max_attempts=1).enqueue(key="x", how=how)
    eventually(lambda: Job.objects.failed().exists(), within=5)
    assert losses(job) == [(1, f"The worker was lost: {reason}.")]
    assert Worker.objects.get(pk=first).death == reason
    record.enqueue(key="next")
    eventually(lambda: Job.objects.done().exists(), within=5)
    assert supervisor.stop() == 0
    assert f"died: {reason}" in supervisor.output


def test_only_what_had_started_is_charged(processes):
    record.using(priority=1).enqueue_many({"key": f"first-{n}"} for n in range(300))
    leave.using(max_attempts=1).enqueue(key="poison", how="kill")
    later = [f"neighbour-{n}" for n in range(200)]
    record.using(priority=-1, max_attempts=1).enqueue_many({"key": key} for key in later)
    supervisor = processes.supervisor("--threads", "1")
    eventually(all_final, within=20)
    neighbours = Job.objects.filter(payload__key__startswith="neighbour")
    assert set(neighbours.values_list("status", "attempts")) == {("done", 1)}
    assert neighbours.filter(claims=2).exists(), "some must have died with the poison"
    assert not neighbours.exclude(errors=[]).exists()
    poison = Job.objects.failed().get()
    assert (poison.kind, poison.attempts) == ("leave", 1)
    assert supervisor.stop() == 0
    assert f"Job {poison.id} (leave) lost its worker in attempt 1: it is failed now." in (
        supervisor.output
    )
    assert " (record) lost its worker, which had not started it: it is pending now." in (
        supervisor.output
    )


def test_a_job_that_kills_its_worker_costs_no_more_deaths_than_attempts(processes):
    poison = leave.using(max_attempts=3).enqueue(key="poison", how="kill")
    record.using(max_attempts=4).enqueue_many(
        {"key": f"good-{n}", "seconds": 0.01} for n in range(500)
    )
    supervisor = processes.supervisor("--threads", "2")
    eventually(all_final, within=30)
    assert [attempt for attempt, _ in losses(poison)] == [1, 2, 3]
    assert (poison.status, len(processes.ledger.starts("poison"))) == ("failed", 3)
    assert Worker.objects.filter(death="signal 9").count() == 3
    good = Job.objects.filter(kind="record")
    assert set(good.values_list("status", flat=True)) == {"done"}
    charged = good.filter(attempts__gt=1)  # in the other thread, or ended and not yet settled
    for job in charged:
        assert {message for _, message in losses(job)} == {"The worker was lost: signal 9."}
    starts = sum(len(processes.ledger.starts(job.payload["key"])) for job in charged)
    attempts = sum(charged.values_list("attempts", flat=True))
    assert attempts - 3 <= starts <= attempts, (
        "one of each death may not have come to its first line"
    )
    assert supervisor.stop() == 0


@pytest.fixture
def small_group(tmp_path: Path) -> Iterator[Path]:
    """A control group whose processes together may use 300 MB."""
    own = Path("/proc/self/cgroup").read_text()
    paths = [line.split(":", 2)[2] for line in own.splitlines() if ":memory:" in line]
    if not paths:
        pytest.skip("needs memory cgroups of version 1")
    group = Path("/sys/fs/cgroup/memory", paths[0].lstrip("/"), f"pgjobs-{os.getpid()}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"needs the right to make a cgroup, got {error}")
    (group / "memory.limit_in_bytes").write_text(str(300 << 20))
    with suppress(OSError):  # without swap accounting
        (group / "memory.memsw.limit_in_bytes").write_text(str(300 << 20))
    yield group
    eventually(lambda: remove(group))


def remove(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:  # its last process is not quite gone
        return False
    return True


def test_want_of_memory_is_told_from_other_kills(processes, small_group):
    enter = ("sh", "-c", 'echo $$ > "$0"; exec "$@"', str(small_group / "cgroup.procs"))
    supervisor = processes.supervisor("--threads", "2", prefix=enter)
    greedy = allocate.using(max_attempts=2).enqueue(key="greedy", megabytes=600)
    record.enqueue_many({"key": str(n)} for n in range(100))
    eventually(all_final, within=20)
    reason = "The worker was lost: killed for want of memory."
    assert losses(greedy) == [(1, reason), (2, reason)]
    assert Job.objects.done().count() == 100
    assert "oom_kill 2" in (small_group / "memory.oom_control").read_text()
    eventually(lambda: supervisor.children)
    held = hold.using(max_attempts=1).enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    os.kill(supervisor.worker.pid, signal.SIGKILL)  # by hand, in the same group
    eventually(lambda: losses(held) == [(1, "The worker was lost: signal 9.")])
    assert supervisor.stop() == 0
    supervisor.kill()


SLOW_CLAIM = """
create or replace function slow_claim() returns trigger language plpgsql as $$
begin perform pg_sleep(1.5); return new; end $$;
create trigger slow_claim before update on django_pgjobs_job for each row
    when (new.status = 'running' and new.attempts = 1 and new.claims = 1)
    execute function slow_claim();
"""


@pytest.fixture
def slow_claims(transactional_db: None) -> Iterator[None]:
    """The first claim of each job takes a while in the server."""
    with connection.cursor() as cursor:
        cursor.execute(SLOW_CLAIM)
    yield
    with connection.cursor() as cursor:
        cursor.execute("drop function if exists slow_claim() cascade")


def is_claiming() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from pg_stat_activity "
            "where wait_event = 'PgSleep' and datname = current_database()"
        )
        return cursor.fetchone() == (1,)


@pytest.mark.usefixtures("slow_claims")
def test_a_claim_that_commits_after_its_worker_died_is_given_back_uncharged(processes):
    supervisor = processes.supervisor()
    worker = supervisor.worker
    job = record.using(max_attempts=1).enqueue(key="x")
    eventually(is_claiming)
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: Worker.objects.filter(pk=worker.pk).exclude(died_at=None).exists())
    assert is_claiming(), "the claim must commit after the death: raise the time that it takes"
    eventually(lambda: Job.objects.done().exists())
    job.refresh_from_db()
    assert (job.attempts, job.claims, job.errors) == (1, 2, [])
    assert [c.given_back for c in audit.changes() if c.old == "running"] == [True, False]
    assert supervisor.stop() == 0
