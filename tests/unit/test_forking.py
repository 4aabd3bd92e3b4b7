"""A forked process is what an executed one is."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from tests import forking, processes

pytestmark = pytest.mark.skipif(not forking.POSSIBLE, reason="not on this system")

SAY = """
import json, os, signal, sys
main = sys.modules["__main__"]
loaded = [name for name in sys.modules if name.startswith("django_pgjobs")]
print(json.dumps([sys.argv, sys.orig_argv[1:], sys.path, main.__spec__.name, os.getcwd(), dict(os.environ),
    os.getsid(0) == os.getpid() == os.getpgrp(), sys.stdin.read(), loaded, len(os.listdir("/proc/self/fd")),
    [str(signal.getsignal(number)) for number in signal.valid_signals()]]), end="")
"""
ENVIRONMENT = {
    **os.environ,
    "DJANGO_SETTINGS_MODULE": "tests.settings_worker",
    "PGJOBS_TEST_URL": "postgresql://127.0.0.1:1/nowhere",
    "PYTHONPATH": os.pathsep.join([str(processes.ROOT), "/elsewhere"]),
    "PYTHONUNBUFFERED": "1",
}


def start(tmp_path, code, prefix=()):
    arguments = ["shell", "--no-imports", "--command", code]
    return processes.Process(arguments, ENVIRONMENT, tmp_path / "output", prefix)


def test_it_finds_what_an_executed_one_finds(tmp_path):
    facts = []
    for prefix in [], ["env"]:
        process = start(tmp_path, SAY, prefix)
        assert process.wait() == 0, process.output
        facts.append(json.loads(process.output))
    found, expected = facts
    assert {entry for entry in found[2] if entry} == {entry for entry in expected[2] if entry}
    assert found[:2] + found[3:] == expected[:2] + expected[3:]


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('why')", 1, "why"),
        ("{}['nothing']", 1, "KeyError"),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
        ("import atexit; atexit.register(print, 'at the end')", 0, "at the end"),
        (
            "import threading; threading.Timer(0.1, print, ['of a thread']).start()",
            0,
            "of a thread",
        ),
        ("import os; print(1, end=''); os._exit(0)", 0, "1"),
    ],
)
def test_its_end_is_told(tmp_path, code, status, said):
    process = start(tmp_path, code)
    assert process.wait() == status
    assert said in process.output
    assert not process.alive


def test_it_is_waited_for_signalled_and_killed(tmp_path):
    process = start(tmp_path, "import signal; signal.pause()")
    assert process.alive
    with pytest.raises(subprocess.TimeoutExpired):
        process._popen.wait(0.01)
    process.signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM
    process.signal(signal.SIGTERM)  # nobody
    process.kill()
