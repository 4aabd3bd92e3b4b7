"""The demo, as `make demo` runs it: it proves its claims, notices lies and leaves nothing behind."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

from tests.waiting import eventually

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parents[2]
MARK = "PGJOBS_TEST_MARK"
TABLE = [
    r"send_receipt +done +1 +a commit gives a receipt +yes",
    r"- +- +- +a rollback gives neither order nor job +yes",
    r"book_courier +done +3 +a job fails twice, then succeeds +yes",
    r"add_loyalty_points +failed +2 +a job is given up, with its error +yes",
    r"add_loyalty_points +done +3 +\.\.\. retried in the admin, it succeeds +yes",
    r"make_invoice +done +2 +a killed worker's job, finished by another +yes",
    r"send_receipt +done +1 +two clicks on a button are one job +yes",
    r"write_statement +done +1 +no customer has more than 2 at a time +yes",
    r"collect_instalment +done +1 +a bank is called four times a second +yes",
    r"report_sales +done +1 +each tick of a schedule is one job +yes",
    r"parcels +archived +1 +a message is sent by a commit alone +yes",
    r"parcels +dead +2 +a poison message is set aside, and says why +yes",
    r"parcels +archived +1 +\.\.\. driven back, it is handled +yes",
]
PLANT_THE_LIES = """
import sys
from example_project import demo, stage
stage.SETTINGS = "tests.acceptance.lies.settings"
sys.exit(demo.main())
"""


class Demo:
    """One run of it, with a folder for temporary files and a mark that its processes inherit."""

    def __init__(self, folder, *command, **environment):
        self.folder = folder
        self.mark = secrets.token_hex(8)
        inherited = {k: v for k, v in os.environ.items() if k != "DATABASE_URL"}
        self.process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**inherited, "TMPDIR": str(folder), MARK: self.mark, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A test run in the background ignores Ctrl-C, and so would its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )

    def output(self):
        return self.process.communicate()[0]

    def read_until(self, words):
        for line in self.process.stdout:
            if words in line:
                return
        raise AssertionError(f"the demo ended before it said {words!r}")

    def leaves_nothing(self):
        return not list(self.folder.iterdir()) and not self.processes_left()

    def processes_left(self):
        return [entry for entry in Path("/proc").glob("[0-9]*/environ") if self._is_ours(entry)]

    def _is_ours(self, environ):
        try:
            return f"{MARK}={self.mark}".encode() in environ.read_bytes().split(b"\0")
        except OSError:  # ended meanwhile, or somebody else's
            return False


@pytest.fixture
def folder():
    # Not pytest's own: as root, PostgreSQL runs under another user, who may not enter that.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        path = Path(name)
        path.chmod(0o1777)
        yield path


@pytest.fixture
def demo(folder):
    started = []

    def start(*command, **environment):
        started.append(Demo(folder, *command, **environment))
        return started[-1]

    yield start
    for run in started:
        with run.process:  # waits, and closes the pipe
            run.process.kill()


def test_it_shows_what_it_claims_and_leaves_nothing_behind(demo):
    run = demo("-m", "example_project.demo")
    output = run.output()
    assert run.process.returncode == 0, output
    for line in TABLE:
        assert re.search(line, output), output
    eventually(run.leaves_nothing)


def test_it_notices_lies_and_drops_its_database_on_a_named_server(demo):
    server = os.environ["PGJOBS_TEST_URL"]
    run = demo("-c", PLANT_THE_LIES, DATABASE_URL=server)
    output = run.output()
    assert run.process.returncode == 1, output
    assert re.findall(r"NOT TRUE: (.*)\.", output) == [
        "one e-mail to Ada lies in the mail folder",
        "no job of Bob's exists",
        "no order of Bob's exists",
        "there are Ada's four jobs and no others",
        "both clicks together made one job",
        "one e-mail more lies in the mail folder",
        "three of one customer's never were",
        "no two started within a quarter of a second",
        "each tick has one job",
        "no message of Bob's exists",
    ]
    assert re.search(r"book_courier +done +3 .* yes", output)
    database = re.search(r"pgjobs_demo_\w+", output).group()
    with psycopg.connect(server) as connection:
        names = connection.execute("select datname from pg_database").fetchall()
    assert (database,) not in names
    eventually(run.leaves_nothing)


@pytest.mark.parametrize(
    ("ending", "moment", "status"),
    [
        (signal.SIGINT, "a database", 130),
        (signal.SIGTERM, "Ada orders", 143),
        (signal.SIGKILL, "Bob orders", -9),
    ],
)
def test_nothing_is_left_when_it_is_interrupted(demo, ending, moment, status):
    run = demo("-m", "example_project.demo")
    run.read_until(moment)
    assert sys.platform != "linux" or run.processes_left()
    run.process.send_signal(ending)
    assert run.process.wait() == status
    eventually(run.leaves_nothing)


def test_a_server_that_does_not_answer_is_told_in_one_line(demo):
    run = demo("-m", "example_project.demo", DATABASE_URL="postgresql://127.0.0.1:1/nowhere")
    output = run.output()
    assert run.process.returncode == 1
    assert "Correct DATABASE_URL, or unset it" in output
    assert "Traceback" not in output
