"""A statement commits and its answer is lost: whoever asked finds out what is true, and nothing is counted twice."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction
from django.db.utils import OperationalError

from django_pgjobs import statements
from django_pgjobs.models import Job, Worker
from tests import audit
from tests.app.jobs import boom
from tests.app.probes import hold, hold_in_sql, look, record
from tests.processes import FAST, no_back_off
from tests.proxies import Proxy
from tests.waiting import eventually

pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("audited")]


@pytest.fixture
def proxy(database_url: str) -> Iterator[Proxy]:
    with Proxy(urlsplit(database_url).port or 5432) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: Proxy) -> dict[str, Any]:
    """Options of a process that reaches the database through the proxy."""
    place = {"HOST": "127.0.0.1", "PORT": str(proxy.port)}
    return {"PGJOBS_TEST_CONNECTION": json.dumps(place)}


def counts() -> Counter[str]:
    """How often jobs were claimed and given back."""
    counted: Counter[str] = Counter()
    for change in audit.changes():
        counted["claims"] += (change.old, change.new) == ("pending", "running")
        counted["releases"] += bool(change.given_back)
    return counted


def end_transactions() -> None:
    """Break the connections on which jobs run in transactions."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and state = 'idle in transaction'"
        )
        assert cursor.rowcount == 1


def done(count: int) -> bool:
    return Job.objects.done().count() == count


@pytest.mark.parametrize("start", ["worker", "supervisor"])
def test_a_claim_is_given_back_and_counts_no_attempt(processes, proxy, through, start):
    process = getattr(processes, start)("--threads", "2", **through)
    assert process.worker
    proxy.cut_after_commit(statements.MOVES["claim"].assignments, answer="record")
    record.enqueue_many({"key": str(n)} for n in range(3))
    eventually(lambda: done(3))
    assert proxy.cuts == 1
    assert "Gave" in process.output
    assert "claimed without an answer" in process.output
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}
    assert counts()["releases"] == counts()["claims"] - 3 >= 1
    assert len(processes.ledger.starts()) == 3
    assert process.stop() == 0


@pytest.mark.parametrize("result", [False, True])
def test_a_settled_job_stays_settled_and_its_worker_finds_out(processes, proxy, through, result):
    worker = processes.worker("--threads", "1", **through)
    if result:
        assert worker.worker
        proxy.cut_after_commit("result = s.result")
        job = look.enqueue()
    else:
        job = hold.enqueue(key="x")
        eventually(lambda: processes.ledger.starts("x"))
        proxy.cut_after_commit(statements.MOVES["complete"].assignments, answer=f"{{{job.pk}}}")
        processes.open_gate("x")
    eventually(lambda: proxy.cuts == 1)
    eventually(lambda: f"Job {job.pk} ({job.kind}) was settled already" in worker.output)
    job.refresh_from_db()
    assert (job.status, job.attempts, job.claims, job.errors) == ("done", 1, 1, [])
    record.enqueue(key="next")
    eventually(lambda: done(2))
    assert worker.stop() == 0, "it holds nothing any more"
    assert "lease" not in worker.output
    assert len(processes.ledger.starts()) == 1 + (not result)


@pytest.mark.parametrize("status", ["retry", "fail"])
def test_a_failed_attempt_is_recorded_once(processes, proxy, through, status):
    worker = processes.worker("--threads", "1", **through)
    assert worker.worker
    proxy.cut_after_commit(statements.MOVES[status].assignments, answer="UPDATE 1")
    job = boom.using(max_attempts=2 if status == "retry" else 1).enqueue()
    eventually(lambda: f"Job {job.pk} ({job.kind}) was settled already" in worker.output)
    job.refresh_from_db()
    assert (job.status, job.attempts) == ({"retry": "pending", "fail": "failed"}[status], 1)
    assert [entry["attempt"] for entry in job.errors] == [1]
    assert worker.stop() == 0
    assert "lease" not in worker.output


@pytest.mark.parametrize("start", ["worker", "supervisor"])
def test_an_attempt_that_was_rolled_back_is_counted_all_the_same(processes, proxy, through, start):
    process = getattr(processes, start)("--claim", "transaction", "--threads", "1", **through)
    job = hold_in_sql.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    proxy.cut_after_commit("with lost as (", answer="\0\0\0\1t")  # true, it is retaken
    if start == "worker":
        end_transactions()
    else:
        os.kill(process.worker.pid, signal.SIGKILL)
    processes.open_gate("x")
    eventually(lambda: no_back_off() or done(1))
    assert proxy.cuts == 1
    job.refresh_from_db()
    assert (job.attempts, [entry["attempt"] for entry in job.errors]) == (2, [1])
    if start == "worker":  # a supervisor's reaper may be there first, and it is counted too
        assert "has gone on since" not in process.output
    assert process.stop() == 0


def test_what_was_given_back_stays_so(processes, proxy, through):
    worker = processes.worker("--threads", "1", **through)
    record.enqueue_many({"key": f"warm-{n}"} for n in range(300))  # short jobs: it claims ahead
    eventually(lambda: done(300))
    proxy.cut_after_commit("with mine as", answer="SELECT")
    hold.enqueue(key="long")
    record.enqueue_many({"key": f"short-{n}"} for n in range(20))
    eventually(lambda: proxy.cuts == 1)
    processes.open_gate("long")
    eventually(lambda: done(321))
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}
    assert counts()["claims"] - counts()["releases"] == 321
    assert worker.stop() == 0


@pytest.mark.parametrize("start", ["worker", "supervisor"])
def test_a_heartbeat_without_an_answer_costs_nothing(processes, proxy, through, start):
    process = getattr(processes, start)("--threads", "1", pgjobs=FAST, **through)
    hold.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    before = process.worker
    for n in range(3):
        proxy.cut_after_commit("set heartbeat_at")
        eventually(lambda n=n: proxy.cuts == n + 1)
    eventually(lambda: process.worker.heartbeat_at > before.heartbeat_at)
    processes.open_gate("x")
    eventually(lambda: done(1))
    assert process.worker.pk == before.pk
    assert Job.objects.get().attempts == 1
    assert process.stop() == 0


@pytest.mark.parametrize("lost", ["django_pgjobs_record_deaths", "django_pgjobs_reap"])
def test_a_loss_is_recorded_once(processes, proxy, through, lost):
    victim = processes.worker("--threads", "1", pgjobs=FAST)
    job = hold.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    dead = victim.worker
    answer = "hold" if lost == "django_pgjobs_reap" else "SELECT 1"
    proxy.cut_after_commit(f"from {lost}(", answer)
    reaper = processes.reaper(pgjobs=FAST, **through)
    victim.kill()
    eventually(lambda: proxy.cuts == 1)
    eventually(lambda: Job.objects.pending().exists())
    job.refresh_from_db()
    assert (job.attempts, [entry["attempt"] for entry in job.errors]) == (1, [1])
    assert Worker.objects.get(pk=dead.pk).died_at
    assert reaper.stop() == 0


def test_a_supervisor_records_the_death_of_a_child_once(processes, proxy, through):
    supervisor = processes.supervisor("--threads", "1", **through)
    job = hold.enqueue(key="x")
    eventually(lambda: processes.ledger.starts("x"))
    first = supervisor.worker
    proxy.cut_after_commit("set died_at", answer="UPDATE 1")
    os.kill(first.pid, signal.SIGKILL)
    eventually(lambda: proxy.cuts == 1)
    processes.open_gate("x")
    eventually(lambda: no_back_off() or done(1))
    job.refresh_from_db()
    assert (job.attempts, [entry["attempt"] for entry in job.errors]) == (2, [1])
    first.refresh_from_db()
    assert (first.death, first.started) == ("signal 9", [job.pk])
    assert supervisor.stop() == 0


@pytest.fixture
def own_connection(audited: None, proxy: Proxy) -> Iterator[None]:
    """The test's own connection goes through the proxy too."""
    settings = connections["default"].settings_dict
    place = {"HOST": settings["HOST"], "PORT": settings["PORT"]}
    connections["default"].close()
    settings.update(HOST="127.0.0.1", PORT=str(proxy.port))
    yield
    connections["default"].close()
    settings.update(place)


def _buy(before_commit: Callable[[], None]) -> None:
    with transaction.atomic():
        Group.objects.create(name="business")
        record.enqueue(key="x")
        record.enqueue_many([{"key": "y"}])
        before_commit()


@pytest.mark.parametrize("cut", ["after COMMIT", "before COMMIT"])
@pytest.mark.usefixtures("own_connection")
def test_after_an_unknown_commit_the_job_is_there_if_the_business_row_is(proxy, cut):
    if cut == "after COMMIT":
        proxy.cut_after_commit("insert into django_pgjobs_job")
    with pytest.raises(OperationalError):
        _buy(before_commit=proxy.drop if cut == "before COMMIT" else lambda: None)
    connections["default"].close()
    there = cut == "after COMMIT"
    assert proxy.cuts == there
    assert (Group.objects.count(), Job.objects.count()) == ((1, 2) if there else (0, 0))


@pytest.mark.usefixtures("own_connection")
def test_an_enqueue_of_its_own_that_says_nothing_may_have_happened(proxy):
    proxy.cut_after_commit("insert into django_pgjobs_job")
    with pytest.raises(OperationalError):
        record.enqueue(key="x")
    connections["default"].close()
    assert Job.objects.pending().count() == 1


@pytest.mark.usefixtures("own_connection")
def test_a_wake_up_without_an_answer_is_no_error_of_the_caller(proxy):
    proxy.cut_after_commit("pg_notify")
    record.enqueue(key="x")
    assert proxy.cuts == 1
    assert Job.objects.pending().count() == 1
