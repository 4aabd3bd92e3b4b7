"""The command `pgjobs` as a process: its exit statuses, and what it needs."""

from __future__ import annotations

import json
import os

import pytest
from django.db import connection

from django_pgjobs.models import Job
from tests.app.jobs import noop
from tests.app.probes import hold
from tests.poolers import Pooler, needs_pgbouncer
from tests.waiting import eventually


def told(process) -> dict:
    assert process.wait() == 0, process.output
    return json.loads(process.output)


@pytest.mark.parametrize("verb", ["stats", "list", "show", "explain"])
def test_questions_need_no_handler_code_and_no_admin(processes, transactional_db, tmp_path, verb):
    (tmp_path / "bare_settings.py").write_text(
        "from tests.settings_worker import *\n"
        "INSTALLED_APPS = ['django.contrib.contenttypes', 'django_pgjobs']\n"
        "MIDDLEWARE = []\n"
        "del ROOT_URLCONF\n"
    )
    job = noop.enqueue(i=7)
    ids = [str(job.pk)] if verb in ("show", "explain") else []
    arguments = ("pgjobs", verb, *ids, "--json")
    process = processes.start(*arguments, DJANGO_SETTINGS_MODULE="bare_settings")
    assert str(told(process))


def test_a_job_that_is_run_under_a_row_lock_says_so(processes, transactional_db):
    job = hold.enqueue("key")
    worker = processes.worker("--claim", "transaction")
    eventually(lambda: job.explain().answer == "locked")
    assert Job.objects.get().status == "pending"
    found = told(processes.start("pgjobs", "explain", str(job.pk), "--json"))
    assert found["answer"] == "locked"
    with connection.cursor() as cursor:
        cursor.execute(
            "select state from pg_stat_activity where pid = %s", [found["facts"]["process"]]
        )
        assert cursor.fetchone() == ("idle in transaction",)
    processes.open_gate("key")
    eventually(lambda: job.explain().answer == "done")
    assert worker.stop() == 0


def test_what_a_worker_wrote_down_is_what_it_serves_and_knows(processes, transactional_db):
    worker = processes.supervisor("--exclude", "mail", "--claim", "lease")
    row = worker.worker
    assert row.queues is None
    assert row.exclude == ["mail"]
    assert row.by_transaction == []
    assert {"noop", "add"} <= row.kinds.keys()
    assert noop.using(queue="mail").enqueue().explain().answer == "unserved"
    assert worker.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("pgjobs",), 2, "usage:"),
        (("pgjobs", "show", "x"), 2, "must be a whole number"),
        (("pgjobs", "retry"), 2, "must be told which jobs"),
        (("pgjobs", "show", "1"), 1, "there is none"),
        (("pgjobs", "retry", "--all"), 1, "Retried 0 jobs."),
        (("pgjobs", "check"), 0, "can run every waiting job"),
        (("pgjobs", "check", "-v", "0", "--settings=tests.settings_worker"), 0, "can run every"),
        (("pgjobs", "--no-color", "check"), 0, "can run every"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_the_exit_status_says_how_it_went(processes, transactional_db, arguments, status, said):
    process = processes.start(*arguments)
    assert process.wait() == status, process.output
    assert said in process.output


def test_a_server_that_does_not_answer_is_told_in_one_line(processes, transactional_db):
    nowhere = "postgresql://nobody@127.0.0.1:1/none"
    process = processes.start("pgjobs", "stats", PGJOBS_TEST_URL=nowhere)
    assert process.wait() == 1
    assert "cannot be asked" in process.output
    assert "Traceback" not in process.output


@needs_pgbouncer
def test_it_works_through_a_pooler_and_says_so(processes, transactional_db):
    jobs = [noop.enqueue(i=n) for n in range(3)]
    settings = {"size": 2, "min_pool_size": "2", "server_round_robin": "1"}
    with Pooler(os.environ["PGJOBS_TEST_URL"], **settings) as pooler:
        way = {"PGJOBS_TEST_CONNECTION": json.dumps(pooler.address)}
        verbs = (["stats"], ["list"], ["explain", str(jobs[0].pk)], ["check"], ["pause", "x"])
        for verb in verbs:
            assert told(processes.start("pgjobs", *verb, "--json", **way))
        process = processes.start("pgjobs", "doctor", "--json", **way)
        assert process.wait() == 1, process.output
    found = {one["check"]: one for one in json.loads(process.output)["findings"]}
    assert {check for check, one in found.items() if one["severity"] != "ok"} == {
        "pooler",
        "queues",
    }
    assert "pgjobs.W00" in found["pooler"]["what"]
