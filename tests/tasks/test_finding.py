"""Workers find tasks, and a row makes nobody import or run what is none."""

from __future__ import annotations

import logging
import sys

import pytest

from django_pgjobs import UnknownKind, deploy_checks, registry
from django_pgjobs.models import Job
from django_pgjobs.tasks import finding, framework
from django_pgjobs.testing import drain
from tests.app import tasks
from tests.db.rows import make

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("kinds")]

TRAP = 'open({path!r}, "w").close()\ndef spring(): ...\n'


@pytest.mark.parametrize(
    "kind",
    [
        "os.system",
        "subprocess.run",
        "tests.app.tasks.no_task",
        "tests.app.tasks.threading",
        "tests.app.tasks.task",
        "tests.app.nowhere.at_all",
        "tests.app.tasks.__doc__",
        "tests.application.tasks.add_up",
        "django_pgjobs.api.enqueue",
        "tests.app.tasks..add_up",
        ".add_up",
        "add_up.",
        "noop",
        "",
    ],
)
def test_what_is_no_task_of_an_installed_app_is_not_found(kind):
    assert finding.find(kind) is None


def test_a_task_is_found_by_its_module_path(kinds):
    del kinds["tests.app.tasks.add_up"]
    assert registry.find("tests.app.tasks.add_up").task is tasks.add_up
    assert "tests.app.tasks.add_up" in kinds


@pytest.mark.parametrize("kind", ["os.system", "tests.app.tasks.no_task", "tests.app.probes.hold"])
def test_a_forged_row_runs_nothing_and_fails(kind):
    job = make(kind=kind, payload={"args": ["exit 7"], "kwargs": {}})
    assert drain() == 1
    job.refresh_from_db()
    assert job.status == "failed"
    assert "UnknownKind" in job.last_error


def test_nothing_outside_the_installed_apps_is_imported(tmp_path, monkeypatch):
    sprung = tmp_path / "sprung"
    (tmp_path / "django_pgjobs_trap.py").write_text(TRAP.format(path=str(sprung)))
    monkeypatch.syspath_prepend(tmp_path)
    make(kind="django_pgjobs_trap.spring")

    drain()

    assert not sprung.exists()
    assert "django_pgjobs_trap" not in sys.modules


@pytest.fixture
def app(tmp_path, monkeypatch, settings):
    """A new installed app, in a folder."""
    folder = tmp_path / "pgjobs_late_app"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "pgjobs_late_app"]
    yield folder
    for name in [name for name in sys.modules if name.startswith("pgjobs_late_app")]:
        del sys.modules[name]


def test_a_module_that_nobody_has_imported_yet_may_hold_a_task(app):
    (app / "mails.py").write_text(
        "from django_pgjobs.tasks import task\n@task\ndef send(n):\n    return n\n"
    )
    make(kind="pgjobs_late_app.mails.send", payload={"n": 3})
    drain()
    assert Job.objects.get().result == 3


IN_A_CLASS = """
from django_pgjobs.tasks import task
class Mails:
    @task(aliases=["pgjobs_late_app.mails.post"])
    def send(n):
        return n
"""


@pytest.mark.parametrize("name", ["Mails.send", "post"])
def test_a_task_that_its_module_declares_elsewhere_in_it_is_found_at_once(app, name):
    (app / "mails.py").write_text(IN_A_CLASS)
    assert registry.find(f"pgjobs_late_app.mails.{name}").kind == "pgjobs_late_app.mails.Mails.send"


def test_the_result_of_a_task_in_a_class_is_there_from_the_first_call(app):
    (app / "mails.py").write_text(IN_A_CLASS)
    job = make(kind="pgjobs_late_app.mails.Mails.send", payload={"n": 3})
    backend = framework.task_backends["default"]
    assert backend.get_result(str(job.pk)).kwargs == {"n": 3}


@pytest.mark.parametrize("fault", ["1 / 0", "raise SystemExit(3)", "def", "import pgjobs_missing"])
def test_a_module_that_cannot_be_imported_fails_its_own_jobs_only(app, caplog, fault):
    caplog.set_level(logging.CRITICAL, "django_pgjobs")
    (app / "broken.py").write_text(fault)
    make(kind="pgjobs_late_app.broken.send")
    drain()
    assert Job.objects.get().status == "failed"
    assert registry.find("pgjobs_late_app.broken.send") is None


def test_what_a_module_lacks_is_logged_and_a_module_that_is_not_there_is_not(app, caplog):
    (app / "broken.py").write_text("import pgjobs_missing")
    assert finding.find("pgjobs_late_app.nowhere.send") is None
    assert not caplog.records
    with pytest.raises(UnknownKind, match="pgjobs_missing"):
        finding.find("pgjobs_late_app.broken.send")
    assert "pgjobs_late_app.broken.send" in caplog.text


def test_the_job_and_the_check_of_a_deploy_name_what_a_module_lacks(app, caplog):
    caplog.set_level(logging.CRITICAL, "django_pgjobs")
    (app / "broken.py").write_text("import pgjobs_missing")
    job = make(kind="pgjobs_late_app.broken.send")
    [misfit] = deploy_checks.misfits("default")
    assert "No module named 'pgjobs_missing'" in misfit.text
    drain()
    job.refresh_from_db()
    assert "No module named 'pgjobs_missing'" in job.last_error
    assert "@job" not in misfit.text + job.last_error


def test_the_advice_for_a_module_path_that_names_nothing_knows_tasks():
    with pytest.raises(UnknownKind, match="@task"):
        registry.get_job("os.system")


def test_a_module_that_is_made_to_be_run_is_not_imported(app):
    sprung = app / "sprung"
    (app / "__main__.py").write_text(TRAP.format(path=str(sprung)))
    make(kind="pgjobs_late_app.__main__.spring")
    drain()
    assert not sprung.exists()
