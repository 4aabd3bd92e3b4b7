"""Probe handlers for real workers: each notes in the ledger what it did."""

from __future__ import annotations

import contextvars
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.contrib.auth.models import Group
from django.db import DatabaseError, connection, transaction
from django.utils import timezone, translation

from django_pgjobs import Retry, job
from tests import ledger
from tests.waiting import eventually

left_behind: contextvars.ContextVar[str] = contextvars.ContextVar("left_behind", default="")


@job
def record(key: str, seconds: float = 0) -> None:
    """Work for a while."""
    ledger.note("start", key)
    if seconds:
        time.sleep(seconds)
    ledger.note("end", key)


@job
def again(delay: float) -> None:
    """Ask for another attempt after so many seconds."""
    raise Retry(delay=delay)


@job
def hold(key: str) -> None:
    """Work until the test opens the gate of this key."""
    ledger.note("start", key)
    gate = Path(os.environ["PGJOBS_TEST_FOLDER"]) / f"gate-{key}"
    eventually(gate.exists, within=60)
    ledger.note("end", key)


@job
def hold_in_sql(key: str) -> None:
    """Work until the test opens the gate of this key, then ask the database something."""
    _query("select 1")
    hold.handler(key)
    _query("select 1")


@job
def hold_in_transaction(key: str) -> None:
    """As above, in one transaction."""
    with transaction.atomic():
        hold_in_sql.handler(key)


@job
def sleep_in_sql(key: str) -> None:
    """Wait for a query that takes a minute."""
    ledger.note("start", key)
    _query("select 1 from pg_sleep(60)")
    ledger.note("end", key)


@job
def write_row(name: str, *, fail: bool = False, seconds: float = 0) -> None:
    """Write a row, by the ORM, and go on for a while."""
    ledger.note("start", name)
    Group.objects.create(name=name)
    if seconds:
        time.sleep(seconds)
    if fail:
        raise ValueError(name)
    ledger.note("end", name)


@job(atomic=True)
def write_atomically(name: str, *, wait: bool = False) -> None:
    """Write a row of this process's own, in one transaction with the settle; wait before if asked."""
    ledger.note("start", name)
    if wait:
        gate = Path(os.environ["PGJOBS_TEST_FOLDER"]) / f"gate-{name}"
        eventually(gate.exists, within=60)
    Group.objects.create(name=f"{name}-{os.getpid()}")
    ledger.note("end", name)


@job
def leave(key: str, how: str) -> None:
    """Try to end more than this job."""
    ledger.note("start", key)
    match how:
        case "sys.exit":
            sys.exit(0)
        case "interrupt":
            raise KeyboardInterrupt
        case "os._exit":
            os._exit(3)
        case "os._exit 0":
            os._exit(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)


@job
def keep_secret(key: str, how: str, password: str, options: dict[str, Any]) -> None:
    """Have a secret in the arguments and in local variables of each frame, and end in some way."""
    copied = [password, options]
    if how == "raise":
        raise ValueError(f"{len(copied)} secrets are kept")
    leave.handler(key, how)


@job
def hold_gil(key: str, seconds: int) -> None:
    """Let no other thread of this process run for a while, as some C extensions do."""
    ledger.note("start", key)
    ctypes.PyDLL(None).sleep(seconds)
    ledger.note("end", key)


@job
def compute(key: str, seconds: int) -> None:
    """Let other threads of this process run as little as Python code can."""
    ledger.note("start", key)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


@job
def allocate(key: str, megabytes: int) -> None:
    """Use memory."""
    ledger.note("start", key)
    len(b"x" * (megabytes << 20))
    ledger.note("end", key)


@job
def start_program(key: str) -> dict[str, Any]:
    """Start a program, end it by SIGTERM; return its status, and what it was told of the worker."""
    ledger.note("start", key)
    code = "import os, time; print('PGJOBS_CHILD' in os.environ, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as program:
        assert program.stdout
        told = program.stdout.readline().strip() == b"True"
        program.terminate()
    return {"status": program.returncode, "told": told}


@job
def orphan(key: str) -> None:
    """Start a program that outlives the one that started it."""
    subprocess.run(["/bin/sh", "-c", "sleep 1 >/dev/null 2>&1 &"], check=True)
    ledger.note("end", key)


@job
def litter(what: str) -> None:
    """Leave something behind in the thread or its connection."""
    match what:
        case "language":
            translation.activate("de")
        case "timezone":
            timezone.activate("Asia/Tokyo")
        case "context variable":
            left_behind.set("something")
        case "atomic":
            transaction.atomic().__enter__()
            Group.objects.create(name="left open")
        case "autocommit":
            transaction.set_autocommit(False)
            Group.objects.create(name="left open")
        case "failed query":
            _fail_unnoticed()
        case "begin by hand":
            _query("begin")
            Group.objects.create(name="left open")
        case "failed query in atomic":
            transaction.atomic().__enter__()
            _fail_unnoticed()
        case _:
            _query(what)


@job
def look() -> dict[str, Any]:
    """Return what a job finds in its thread."""
    return {
        "thread": threading.get_ident(),
        "language": translation.get_language(),
        "timezone": timezone.get_current_timezone_name(),
        "context variable": left_behind.get(),
        "atomic": connection.in_atomic_block,
        "autocommit": transaction.get_autocommit(),
        "backend": _query("select pg_backend_pid()"),
        "settings": _query("select json_object_agg(name, setting) from pg_settings"),
        "role": _query("select current_user"),
        "temporary": _query("select count(*) from pg_class where relpersistence = 't'"),
        "locks": _query(
            "select count(*) from pg_locks join pg_database on database = pg_database.oid "
            "where locktype = 'advisory' and datname = current_database()"
        ),
        "statements": _query("select count(*) from pg_prepared_statements where from_sql"),
    }


def _fail_unnoticed() -> None:
    with suppress(DatabaseError):
        _query("select 1/0")


def _query(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0] if cursor.description else None
