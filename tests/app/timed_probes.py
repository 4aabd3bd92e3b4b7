"""Probe handlers that do not end in time, each in a way of its own."""

from __future__ import annotations

import ctypes
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from django.db import connection, transaction

from django_pgjobs import job
from tests import ledger

# How a handler overruns, and whether it can be interrupted.
INTERRUPTIBLE = ("cpu", "catch Exception", "naps", "in atomic")
STUCK = ("sleep", "socket", "lock", "catch BaseException", "program", "query")


@job(timeout=1)
def overrun(key: str, how: str) -> None:
    """Do not end in time."""
    ledger.note_start(key)
    try:
        if how in _BLOCKING:
            _BLOCKING[how]()
        else:
            _compute(how, time.monotonic() + 60)
    finally:
        ledger.note("stopped", key)


def _compute(how: str, until: float) -> None:
    match how:
        case "cpu":
            _spin(until)
        case "catch Exception":
            while time.monotonic() < until:
                with suppress(Exception):
                    _spin(time.monotonic() + 1)
        case "catch BaseException":
            with suppress(BaseException):
                _spin(until)
            _spin(until)
        case "naps":
            while time.monotonic() < until:
                time.sleep(0.05)
        case "in atomic":
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("select 1")
                _spin(until)


def _acquire_twice() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def _receive() -> None:
    here, _there = socket.socketpair()
    here.recv(1)


def _run_program() -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(8)"
    subprocess.run([sys.executable, "-c", code], check=True)


def _query() -> None:
    with connection.cursor() as cursor:
        cursor.execute("select pg_sleep(60)")


_BLOCKING: dict[str, Callable[[], object]] = {
    "sleep": lambda: time.sleep(60),
    "socket": _receive,
    "lock": _acquire_twice,
    "program": _run_program,
    "query": _query,
    "gil": lambda: ctypes.PyDLL(None).sleep(60),
}


@job(timeout=1)
def swallow_once(key: str) -> str:
    """Return as if nothing were, after the interruption."""
    ledger.note_start(key)
    with suppress(BaseException):
        _spin(time.monotonic() + 60)
    ledger.note("stopped", key)
    return "all is well"


@job(timeout=5)
def in_time(key: str) -> str:
    """End in time."""
    ledger.note_start(key)
    return key


def _spin(until: float) -> None:
    while time.monotonic() < until:
        pass
