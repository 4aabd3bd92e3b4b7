"""Probe handlers that are coroutines: each notes in the ledger what it did."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.utils import timezone, translation

from django_pgjobs import job
from tests import ledger
from tests.app.probes import left_behind


@job
async def nap(key: str, seconds: float = 0) -> None:
    """Wait without keeping anybody else."""
    ledger.note("start", key)
    await asyncio.sleep(seconds)
    ledger.note("end", key)


@job
async def ahold(key: str) -> None:
    """Work until the test opens the gate of this key."""
    ledger.note("start", key)
    try:
        await _gate(key)
    except asyncio.CancelledError:
        ledger.note("cancelled", key)
        raise
    ledger.note("end", key)


@job
async def awrite(name: str) -> dict[str, Any]:
    """Use the database by the async ORM and by calls of other threads; say on which sessions."""
    await Group.objects.acreate(name=name)
    found = [group.name async for group in Group.objects.filter(name=name).aiterator()]
    assert found == [name]
    session = await sync_to_async(_session)()
    assert session == await sync_to_async(_session)()
    return {"session": session, "other": await asyncio.to_thread(_session)}


@job
async def greet(user: User) -> str:
    """Take a model instance, which is loaded where the job runs."""
    return user.username


@job
async def astain(tag: str) -> list[Any]:
    """Change what belongs to a context, let others run, and return what is there."""
    before = [translation.get_language(), timezone.get_current_timezone_name(), left_behind.get()]
    translation.activate("de")
    timezone.activate("Asia/Tokyo")
    left_behind.set(tag)
    await asyncio.sleep(0.01)
    return [*before, left_behind.get(), await sync_to_async(left_behind.get)()]


@job
async def aleave(key: str, how: str) -> None:
    """Try to end more than this job."""
    ledger.note("start", key)
    match how:
        case "exception":
            raise ValueError(key)
        case "sys.exit":
            sys.exit(0)
        case "sys.exit in a task":
            await asyncio.create_task(_exit())
        case "sys.exit in a thread":
            await sync_to_async(sys.exit)(0)
        case "interrupt":
            raise KeyboardInterrupt
        case "cancel":
            raise asyncio.CancelledError
        case "cancel itself":
            task = asyncio.current_task()
            assert task
            task.cancel()


@job
async def alitter(what: str, key: str = "") -> None:
    """Leave something behind, on the connection or on the loop."""
    match what:
        case "atomic":
            await sync_to_async(_enter_atomic)()
        case "autocommit":
            await sync_to_async(transaction.set_autocommit)(False)  # noqa: FBT003 -- takes no name
        case "task":
            asyncio.create_task(nap.handler(key, 3_600)).add_done_callback(
                lambda _: ledger.note("cancelled", key)
            )
            await asyncio.sleep(0)


@job
async def alook() -> dict[str, Any]:
    """Return what a job finds on its connection."""
    return await sync_to_async(_look)()


@job(timeout=1)
async def aoverrun(key: str, how: str) -> str:
    """Do not end in time."""
    ledger.note_start(key)
    try:
        match how:
            case "sleep":
                await asyncio.sleep(60)
            case "swallow":
                await _swallow()
            case "return late":
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    return "all is well"
            case "task":
                await asyncio.gather(asyncio.sleep(60), asyncio.sleep(70))
            case "query":
                await sync_to_async(_query)("select pg_sleep(60)")
            case "thread":
                await asyncio.to_thread(time.sleep, 60)
            case "block":
                time.sleep(60)  # noqa: ASYNC251 -- just what one should not do
    finally:
        ledger.note("stopped", key)
    return "in time"


async def _gate(key: str) -> None:
    gate = Path(os.environ["PGJOBS_TEST_FOLDER"]) / f"gate-{key}"
    while not gate.exists():  # noqa: ASYNC110 -- the test is another process
        await asyncio.sleep(0.02)


async def _exit() -> None:
    sys.exit(0)


async def _swallow() -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            ledger.note("swallowed", "")


def _enter_atomic() -> None:
    transaction.atomic().__enter__()
    Group.objects.create(name="left open")


def _session() -> int:
    return int(_query("select pg_backend_pid()"))


def _look() -> dict[str, Any]:
    return {
        "atomic": connection.in_atomic_block,
        "autocommit": transaction.get_autocommit(),
        "thread": threading.current_thread().name,
    }


def _query(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]
