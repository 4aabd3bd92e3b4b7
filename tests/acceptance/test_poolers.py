"""Everything works through a PgBouncer in transaction mode, whatever it does with our sessions."""

from __future__ import annotations

import datetime
import json
import os
import signal
import time
from collections import Counter
from contextlib import closing

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.db import connection, connections, transaction

from django_pgjobs import aenqueue, enqueue
from django_pgjobs.models import Job, Worker
from django_pgjobs.sessions import IN_ORDER, Session, connect
from tests.app.connection_probes import use_orm
from tests.app.jobs import anoop, boom
from tests.app.probes import hold, record
from tests.poolers import Pooler, needs_pgbouncer
from tests.processes import CALM, FAST, no_back_off
from tests.waiting import eventually

pytestmark = [pytest.mark.newest, needs_pgbouncer, pytest.mark.usefixtures("audited")]

READY = "Listening for wake-ups on the database 'other'"
TOLD = "got a pooler in transaction mode"
TROUBLE = ("ERROR ", "CRITICAL ", "refuse", "reach", "died")
HOUR = 3_600.0


@pytest.fixture
def pooler():
    """Two sessions for all, in turn: nobody gets the one that he had, but by chance."""
    with Pooler(
        os.environ["PGJOBS_TEST_URL"], size=2, min_pool_size="2", server_round_robin="1"
    ) as pooler:
        yield pooler


@pytest.fixture
def through(pooler, monkeypatch):
    """This process's own connections go through the pooler too."""
    connection.close()
    with monkeypatch.context() as changed:
        for name, value in pooler.address.items():
            changed.setitem(connections.settings["default"], name, value)
        yield
        connection.close()


def way(pooler, **more):
    return {"PGJOBS_TEST_CONNECTION": json.dumps({**pooler.address, **more})}


def counts() -> Counter[str]:
    return Counter(Job.objects.values_list("status", flat=True))


def _of_both(execute, statement):
    """Ask both sessions, once both are there."""
    asked = [execute(statement).fetchone() for _ in range(4)]
    return asked if len({session for session, *_ in asked}) == 2 else None


def assert_sessions_hold_nothing(pooler) -> None:
    """Ask each session of the pooler what was left in it; what the pooler itself sets is its own."""
    held = """
        select pg_backend_pid(), array(select pg_listening_channels()),
            array(select name from pg_prepared_statements), array(select name from pg_cursors),
            array(select objid from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
            array(select name from pg_settings where source = 'session' and name not in (
                'application_name', 'client_encoding', 'DateStyle', 'standard_conforming_strings',
                'TimeZone')), current_user = session_user
    """
    with closing(connect("default")) as wrapper:
        asked = eventually(lambda: _of_both(wrapper.connection.execute, held))
    assert all(left == [[], [], [], [], [], True] for _, *left in map(list, asked)), asked


def test_callers_need_no_session(through, pooler):
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    with transaction.atomic():
        first = enqueue("record", key="first")
        with transaction.atomic():
            record.using(delay=60).enqueue(key="delayed")
        transaction.on_commit(lambda: record.enqueue(key="after"))
    many = record.enqueue_many({"key": str(n)} for n in range(6_000))
    async_to_sync(aenqueue)("record", key="async")
    assert counts() == {"pending": 6_004}
    assert first.cancel() == 1
    assert first.retry() == 1
    assert Job.objects.filter(pk__in=many).reschedule(later) == 6_000
    assert Job.objects.filter(pk__in=many).cancel() == 6_000
    assert Job.objects.delayed().count() == 1
    call_command("reapjobs", verbosity=0)
    assert counts() == {"pending": 4, "cancelled": 6_000}
    assert_sessions_hold_nothing(pooler)


@pytest.fixture
def strict():
    """New transactions of this database are serializable by default."""
    database = connection.ops.quote_name(connection.settings_dict["NAME"])

    def alter(change):
        with connection.cursor() as cursor:
            cursor.execute(f"alter database {database} {change}")

    alter("set default_transaction_isolation to serializable")
    yield
    alter("reset default_transaction_isolation")


def test_what_a_worker_sets_is_set_for_its_own_statement(strict, through, pooler):
    names = ("transaction_isolation", "jit", "enable_sort")
    asked = "select " + ", ".join(f"current_setting('{name}')" for name in names)
    session = Session("default", IN_ORDER)

    answers = [session.execute(asked, {}, patience) for patience in (None, None, 1.0, 1.0)]
    session.close()

    assert answers == [[("read committed", "off", "off")]] * 4
    assert_sessions_hold_nothing(pooler)


SETTINGS = {
    "as Django has them": {},
    "with server-side cursors off": {"DISABLE_SERVER_SIDE_CURSORS": True, "CONN_MAX_AGE": 60},
    "with more of Django's": {
        "DISABLE_SERVER_SIDE_CURSORS": True,
        "OPTIONS": {"server_side_binding": True, "pool": {"min_size": 1, "max_size": 4}},
    },
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_supervisor_and_its_children_work_through_two_sessions(
    through, pooler, processes, settings
):
    chosen = SETTINGS[settings]
    supervisor = processes.supervisor(
        *("--processes", "2", "--threads", "3"),
        pgjobs={**CALM, "HEARTBEAT": 0.5, "KEEP_DONE": HOUR, "LISTEN_DATABASE": "other"},
        PGJOBS_TEST_LOG_LEVEL="INFO",
        **way(pooler, **chosen),
    )
    eventually(lambda: supervisor.output.count(READY) == 2, within=20)
    beat = supervisor.worker.heartbeat_at
    record.enqueue_many({"key": str(n)} for n in range(300))
    anoop.enqueue_many({"i": n} for n in range(50))
    boom.using(max_attempts=2).enqueue_many([{}] * 5)
    names = [f"group {n}" for n in range(10)]
    if chosen.get("DISABLE_SERVER_SIDE_CURSORS"):
        use_orm.enqueue_many({"name": name} for name in names)
    eventually(lambda: Job.objects.pending().filter(attempts=1).count() == 5, within=30)
    no_back_off()
    eventually(lambda: not Job.objects.pending() | Job.objects.running(), within=30)
    assert counts()["failed"] == 5, list(Job.objects.failed().values_list("last_error"))
    assert not Job.objects.done().exclude(attempts=1).exists()
    for job in Job.objects.filter(kind="use_orm"):
        assert job.result == [job.payload["name"], f"{job.payload['name']} again"]
    assert eventually(lambda: Worker.objects.order_by("id")[0].heartbeat_at > beat)
    Job.objects.done().update(finished_at="2020-01-01T00:00Z")
    eventually(lambda: not Job.objects.done().exists())
    assert supervisor.stop() == 0
    assert not [word for word in TROUBLE if word in supervisor.output], supervisor.output
    assert_sessions_hold_nothing(pooler)


def test_the_jobs_of_a_killed_worker_are_reaped_through_it(pooler, processes):
    supervisor = processes.supervisor("--no-notify", pgjobs=FAST, **way(pooler))
    hold.using(max_attempts=2).enqueue(key="victim")
    eventually(lambda: processes.ledger.starts("victim"))
    os.kill(supervisor.children[0], signal.SIGKILL)
    processes.open_gate("victim")
    eventually(lambda: Job.objects.filter(attempts=1, status="pending").exists())
    no_back_off()
    eventually(lambda: Job.objects.done().filter(attempts=2).exists())
    assert supervisor.stop() == 0


@pytest.mark.parametrize("listening", ["default", "other"])
def test_wake_ups_left_on_are_told_once_and_leave_nothing(through, pooler, processes, listening):
    """`other` leads past the pooler here: it hears the notifications that pass through."""
    settings = {**CALM, "LISTEN_DATABASE": listening, "POLL": HOUR if listening == "other" else 0.5}
    worker = processes.worker(pgjobs=settings, PGJOBS_TEST_LOG_LEVEL="INFO", **way(pooler))
    ready = {"default": TOLD, "other": READY}[listening]
    eventually(lambda: ready in worker.output or not worker.alive, within=8)
    for key in "abc":
        record.enqueue(key=key)
        eventually(lambda key=key: processes.ledger.ends(key))
    eventually(lambda: Job.objects.done().count() == 3)
    assert worker.stop() == 0, worker.output
    assert worker.output.count("WARNING") == worker.output.count(TOLD) == (listening == "default")
    assert_sessions_hold_nothing(pooler)


def test_workers_outlive_a_restart_of_the_pooler_under_load(pooler, processes):
    supervisor = processes.supervisor(
        *("--processes", "2", "--threads", "2"),
        pgjobs={**CALM, "LISTEN_DATABASE": "other"},
        **way(pooler),
    )
    jobs = 400
    record.enqueue_many({"key": str(n), "seconds": 0.01} for n in range(jobs))
    eventually(lambda: Job.objects.done().count() > 20, within=20)
    children = supervisor.children
    pooler.kill()
    eventually(lambda: supervisor.output.count("cannot be reached") >= 2)
    assert Job.objects.running().exists()
    pooler.start()
    before, back = Job.objects.done().count(), time.monotonic()
    eventually(lambda: Job.objects.done().count() > before)
    assert time.monotonic() - back < 10
    eventually(lambda: Job.objects.done().count() == jobs, within=20)
    assert not Job.objects.exclude(attempts=1).exists()
    assert Counter(entry.key for entry in processes.ledger.starts()).most_common(1)[0][1] == 1
    assert supervisor.children == children
    assert supervisor.stop() == 0
