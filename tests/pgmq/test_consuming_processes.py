"""Consumers in processes of their own, as they are run for good."""

from __future__ import annotations

import os

import pytest
from django.db import connection

from tests.waiting import eventually

CONSUMING = {"PGJOBS_TEST_PGMQ": "1"}


def column(name, table="q_emails"):
    with connection.cursor() as cursor:
        cursor.execute(f"select {name} from pgmq.{table} order by msg_id")  # noqa: S608
        return [value for (value,) in cursor.fetchall()]


@pytest.mark.parametrize("arguments", [(), ("--pgmq", "emails")])
def test_a_stop_lets_the_handler_end_and_leaves_nothing_half_done(committed, processes, arguments):
    committed.send_batch(["first", "second"])
    supervisor = processes.supervisor(*arguments, **CONSUMING)
    eventually(lambda: processes.ledger.starts("first"), within=20)

    supervisor.signal(15)
    processes.open_gate("second")  # it may begin before the child hears of the stop
    processes.open_gate("first")

    assert supervisor.wait() == 0, supervisor.output
    archived = column("message", "a_emails")
    assert archived[0] == '"first"'
    assert column("read_ct") == [0] * (2 - len(archived))


def test_a_handler_that_runs_for_too_long_is_left_and_its_message_is_read_again(
    committed, processes
):
    committed.send("long")
    worker = processes.worker("--shutdown-timeout", "0.2", **CONSUMING)
    eventually(lambda: processes.ledger.starts("long"), within=20)

    assert worker.stop() == 1, worker.output

    assert column("read_ct") == [1]
    assert committed.read() == []
    committed.set_vt(column("msg_id"), 0)
    processes.worker(**CONSUMING)
    processes.open_gate("long")
    eventually(lambda: column("read_ct", "a_emails") == [2], within=20)


def test_a_process_that_is_killed_costs_a_message_only_its_time(committed, processes):
    committed.send("killed")
    supervisor = processes.supervisor(**CONSUMING)
    [start] = eventually(lambda: processes.ledger.starts("killed"), within=20)

    os.kill(start.pid, 9)
    committed.set_vt(column("msg_id"), 0)
    eventually(lambda: len(processes.ledger.starts("killed")) == 2, within=20)
    processes.open_gate("killed")

    eventually(lambda: column("read_ct", "a_emails") == [2], within=20)
    assert supervisor.stop() == 0, supervisor.output
