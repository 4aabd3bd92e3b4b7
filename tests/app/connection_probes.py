"""Probe handlers that do something to connections."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from typing import Any

from django.contrib.auth.models import Group
from django.db import connection, transaction

from django_pgjobs import job
from tests import ledger


@job
def use_orm(name: str) -> list[str]:
    """Read and write by the ORM, in a transaction, outside one and with an iterator."""
    ledger.note("start", name)
    with transaction.atomic():
        Group.objects.create(name=name)
    Group.objects.create(name=f"{name} again")
    written = Group.objects.filter(name__startswith=name).order_by("name")
    found = [group.name for group in written.iterator(chunk_size=1)]
    ledger.note("end", name)
    return found


@job
def fork(key: str) -> list[Any]:
    """Ask the database who is there, in this process, in forks of it, and here again."""
    with transaction.atomic():
        reports = [_report()]
        context = multiprocessing.get_context("fork")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads
            with context.Pool(2) as pool:
                reports += [pool.apply(_report), pool.apply(_report)]
        return [*reports, _report()]


@job
def end_a_fork(key: str) -> int | None:
    """Fork a process that waits, and end it as multiprocessing does, by SIGTERM."""
    process = multiprocessing.get_context("fork").Process(target=signal.pause)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    process.terminate()
    process.join(5)
    process.kill()
    return process.exitcode


def _report() -> tuple[int, int, bool]:
    with connection.cursor() as cursor:
        cursor.execute("select pid, ssl from pg_stat_ssl where pid = pg_backend_pid()")
        return (os.getpid(), *cursor.fetchone())
