"""What is in a payload is not told: not by logs, tracebacks and messages, nor to who lists processes."""

from __future__ import annotations

import json
from pathlib import Path

from django.db import connection

from django_pgjobs.models import Job, Worker
from tests.app.probes import keep_secret
from tests.processes import no_back_off
from tests.waiting import eventually

CANARY = "c4nary-s3cret"
ARGUMENTS = {"password": CANARY, "options": {"servers": [{"api_key": CANARY}]}}


def all_final() -> bool:
    no_back_off()
    return not Job.objects.filter(finished_at=None).exists()


def test_however_a_job_ends_its_arguments_are_told_nowhere_but_in_its_payload(processes):
    supervisor = processes.supervisor("--threads", "2", PGJOBS_TEST_LOG_LEVEL="DEBUG")
    reaper = processes.reaper("--interval", "0.2", PGJOBS_TEST_LOG_LEVEL="DEBUG")
    for how in ("return", "raise", "sys.exit", "kill"):
        keep_secret.using(max_attempts=2).enqueue(key=how, how=how, **ARGUMENTS)
    Job.objects.create(kind="noop", payload=ARGUMENTS, max_attempts=1)  # of another signature
    Job.objects.create(kind="of_tomorrow", payload=ARGUMENTS)
    shown = [Path(f"/proc/{pid}/cmdline").read_text() for pid in supervisor.children]
    eventually(all_final, within=30)

    assert supervisor.stop() == reaper.stop() == 0
    rows = [{**row, "payload": None} for row in Job.objects.values()]
    assert sum(len(row["errors"]) for row in rows) >= 8, "there was something to tell"
    shown += [process.output for process in processes.started]
    shown += [json.dumps([*rows, *Worker.objects.values()], default=str)]
    shown += [f"{job} {job!r}" for job in Job.objects.all()]
    with connection.cursor() as cursor:
        cursor.execute("select string_agg(application_name, ' ') from pg_stat_activity")
        shown += cursor.fetchone()
    assert any(" starts." in text for text in shown), "the level of the logs is DEBUG"
    assert [text for text in shown if CANARY in text] == []
