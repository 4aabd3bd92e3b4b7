"""`manage.py runjobs` runs tasks: those of modules that it imports, and those that it finds."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_pgjobs.models import Job
from django_pgjobs.tasks import framework
from tests.app import tasks
from tests.app.jobs import add
from tests.app.probes import record
from tests.db.rows import make
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

Status = framework.TaskResultStatus


@pytest.mark.parametrize("claim", ["lease", "transaction"])
def test_one_worker_runs_jobs_and_tasks_sync_and_async(processes, claim):
    results = [
        chosen.enqueue(20)
        for chosen in (tasks.add_up, tasks.collect, tasks.tell_attempt, tasks.give_back)
        + ((tasks.add_up_async, tasks.tell_attempt_async) if claim == "lease" else ())
    ]
    failing = tasks.fail.using(max_attempts=1).enqueue()
    plain = add.enqueue(1, 2)

    worker = processes.worker("--drain", "--claim", claim, "--poll", "0.1")

    assert worker.wait() == 0, worker.output
    for result in results:
        result.refresh()
        assert (result.status, result.attempts) == (Status.SUCCESSFUL, 1), worker.output
        assert len(set(result.worker_ids)) == 1
    failing.refresh()
    assert (failing.status, failing.errors[0].exception_class) == (Status.FAILED, ValueError)
    assert f"Task id={failing.id} path=tests.app.tasks.fail state=FAILED" in worker.output
    assert Job.objects.get(pk=plain.pk).result == 3


def test_a_process_knows_the_tasks_of_the_installed_apps_from_the_start(processes):
    known = (
        "from django_pgjobs import registry; print('tests.app.tasks.add_up' in registry.kinds())"
    )
    process = processes.start("shell", "--command", known)
    assert process.wait() == 0, process.output
    assert process.output.splitlines()[-1] == "True"


def test_a_forged_row_ends_no_worker_and_runs_nothing(processes, tmp_path):
    sprung = tmp_path / "sprung"
    (tmp_path / "pgjobs_trap.py").write_text(f"open({str(sprung)!r}, 'w').close()\n")
    forged = [
        make(kind=kind) for kind in ("pgjobs_trap.spring", "os.abort", "tests.app.tasks.no_task")
    ]
    result = tasks.add_up.enqueue(1)

    worker = processes.worker("--drain")

    assert worker.wait() == 0, worker.output
    assert not sprung.exists()
    for job in forged:
        job.refresh_from_db()
        assert (job.status, "UnknownKind" in job.last_error) == ("failed", True)
    result.refresh()
    assert result.return_value == 1


def test_a_worker_that_waits_is_woken_by_the_commit_of_an_enqueue(processes):
    worker = processes.worker("--poll", "60")
    assert worker.worker
    with transaction.atomic():
        result = tasks.add_up.enqueue(1)
        record.enqueue(key="first")
    eventually(lambda: tasks.add_up.get_result(result.id).is_finished, within=20)
