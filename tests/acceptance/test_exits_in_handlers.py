"""Handlers that try to end the process, and rows that no handler fits: the worker goes on."""

from __future__ import annotations

import pytest
from django.db import connection

from django_pgjobs.models import Job
from tests.app.probes import hold, leave, record
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("audited")


def test_sys_exit_fails_its_job_and_not_the_worker(processes):
    worker = processes.worker("--threads", "1")
    bad = leave.using(max_attempts=1).enqueue(key="bad", how="sys.exit")
    record.enqueue(key="good")
    eventually(lambda: Job.objects.done().exists())
    bad.refresh_from_db()
    assert bad.status == "failed"
    assert bad.last_error.startswith("SystemExit")
    assert {entry.pid for entry in processes.ledger.starts()} == {worker.pid}
    assert worker.stop() == 0


def test_a_keyboard_interrupt_in_a_handler_stops_the_worker_in_good_order(processes):
    worker = processes.worker("--threads", "2")
    hold.enqueue(key="other")
    eventually(lambda: processes.ledger.starts("other"))
    job = leave.using(max_attempts=1).enqueue(key="x", how="interrupt")
    eventually(lambda: Job.objects.failed().exists())
    record.enqueue(key="late")
    eventually(lambda: worker.worker.stopping_at)
    processes.open_gate("other")
    assert worker.wait() == 0
    job.refresh_from_db()
    assert job.last_error.startswith("KeyboardInterrupt")
    assert processes.ledger.ends("other")
    assert not processes.ledger.starts("late")


@pytest.mark.parametrize(
    "code", ["exit()", "import sys; sys.exit(0)", "raise KeyboardInterrupt", "import nothing_here"]
)
def test_a_jobs_module_that_exits_at_import_is_named_and_no_clean_exit(processes, tmp_path, code):
    folder = tmp_path / "leaving_app"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "jobs.py").write_text(code)
    worker = processes.worker("--drain", PGJOBS_TEST_APPS="leaving_app")
    assert worker.wait() != 0
    assert "leaving_app.jobs" in worker.output or "leaving_app/jobs.py" in worker.output


def test_rows_that_no_handler_fits_fail_and_the_others_run(processes):
    bad = {
        "no_such_kind": "{}",
        "os.system": '{"command": "false"}',
        "__main__.x": "{}",
        "." * 200: "{}",
        "record": '{"key": "x", "unknown": 1}',
        "hold": "{}",
    }
    with connection.cursor() as cursor:
        for kind, payload in bad.items():
            cursor.execute(
                "insert into django_pgjobs_job (kind, payload, max_attempts) values (%s, %s, 1)",
                [kind, payload],
            )
    record.enqueue_many({"key": f"good-{n}"} for n in range(100))
    worker = processes.worker("--threads", "2")
    eventually(lambda: not Job.objects.filter(status__in=["pending", "running"]).exists())
    assert Job.objects.done().count() == 100
    for job in Job.objects.failed():
        error = "UnknownKind" if job.kind not in ("record", "hold") else "argument"
        assert error in job.last_error
    assert Job.objects.failed().count() == len(bad)
    assert worker.stop() == 0


def test_a_kind_that_was_unknown_runs_after_a_deploy_and_a_retry_by_hand(processes, tmp_path):
    with connection.cursor() as cursor:
        cursor.execute("insert into django_pgjobs_job (kind) values ('of_tomorrow')")
    assert processes.worker("--drain").wait() == 0
    assert Job.objects.failed().count() == 1
    folder = tmp_path / "tomorrows_app"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "jobs.py").write_text(
        "from django_pgjobs import job\n@job\ndef of_tomorrow(): return 'here now'\n"
    )
    assert Job.objects.failed().retry() == 1
    assert processes.worker("--drain", PGJOBS_TEST_APPS="tomorrows_app").wait() == 0
    assert Job.objects.done().get().result == "here now"
