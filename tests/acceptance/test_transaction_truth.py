"""A job exists if and only if its transaction commits, with a real worker polling all the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_pgjobs.exceptions import InvalidPayload
from django_pgjobs.models import Job
from tests.app.probes import record
from tests.concurrency.hand_session import HandSession
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("audited")


class UndoError(Exception):
    """Makes a block roll back."""


@contextmanager
def rolled_back() -> Iterator[None]:
    """Open a block, atomic or a savepoint, that an exception ends."""
    with suppress(UndoError), transaction.atomic():
        yield
        raise UndoError


class Watch:
    """The worker, and what it can be asked from inside an open transaction."""

    def __init__(self, processes, session):
        self.ledger = processes.ledger
        self._session = session
        self._canaries = 0
        process = processes.worker("--poll", "0.05")
        assert process.worker

    def looks_again(self):
        """Return when the worker has twice taken a job that was committed after this call began."""
        for _ in range(2):
            self._canaries += 1
            key = f"canary{self._canaries}"
            self._session.do(lambda key=key: record.enqueue(key=key))
            eventually(lambda key=key: self.ledger.ends(key))

    def started(self):
        return {e.key for e in self.ledger.starts() if not e.key.startswith("canary")}


@pytest.fixture
def watch(processes):
    with HandSession() as session:
        yield Watch(processes, session)


def transaction_id() -> str:
    with connection.cursor() as cursor:
        cursor.execute("select pg_current_xact_id()::text")
        return cursor.fetchone()[0]


def assert_started_after_commit(watch, key, xid):
    [start] = eventually(lambda: watch.ledger.starts(key))
    with connection.cursor() as cursor:
        cursor.execute("show track_commit_timestamp")
        if cursor.fetchone() != ("on",):
            return  # the server is somebody's own: only the order of events is checked then
        cursor.execute("select extract(epoch from pg_xact_commit_timestamp(%s::xid))", [xid])
        assert start.at >= float(cursor.fetchone()[0])


def test_a_job_starts_only_after_the_commit_and_sees_its_data(watch):
    with transaction.atomic():
        Group.objects.create(name="order")
        record.enqueue(key="committed")
        xid = transaction_id()
        watch.looks_again()
        assert watch.started() == set()
    assert_started_after_commit(watch, "committed", xid)


def test_a_durable_block_is_a_transaction_like_any_other(watch):
    with transaction.atomic(durable=True):
        record.enqueue(key="durable")
        xid = transaction_id()
        watch.looks_again()
        assert watch.started() == set()
    assert_started_after_commit(watch, "durable", xid)


def test_a_rolled_back_job_leaves_no_row_and_never_starts(watch):
    with rolled_back():
        Group.objects.create(name="order")
        record.enqueue(key="undone")
        watch.looks_again()
    assert not Job.objects.filter(payload__key="undone").exists()
    watch.looks_again()
    assert watch.started() == set()
    assert not Group.objects.filter(name="order").exists()


def test_a_savepoint_takes_its_own_jobs_along_when_it_rolls_back(watch):
    with transaction.atomic():
        record.enqueue(key="before")
        with rolled_back():
            record.enqueue(key="inside")
        with transaction.atomic():
            record.enqueue(key="released")
        record.enqueue(key="after")
        xid = transaction_id()
        watch.looks_again()
        assert watch.started() == set()
    for key in ("before", "released", "after"):
        assert_started_after_commit(watch, key, xid)
    watch.looks_again()
    assert watch.started() == {"before", "released", "after"}
    assert not Job.objects.filter(payload__key="inside").exists()


def test_an_outer_rollback_takes_released_savepoints_along(watch):
    with rolled_back(), transaction.atomic():
        record.enqueue(key="released")
    watch.looks_again()
    assert watch.started() == set()


@pytest.fixture
def inserts_refused(transactional_db) -> Iterator[None]:
    table, name = "django_pgjobs_job", "refused_by_the_test"
    with connection.cursor() as cursor:
        cursor.execute(f"alter table {table} add constraint {name} check (kind <> 'record')")
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"alter table {table} drop constraint {name}")


def order_and_enqueue(key: str) -> None:
    with transaction.atomic():
        Group.objects.create(name="order")
        record.enqueue(key=key)


def test_an_enqueue_that_the_database_refuses_takes_the_business_row_along(inserts_refused):
    with pytest.raises(IntegrityError):
        order_and_enqueue("x")
    assert (Group.objects.count(), Job.objects.count()) == (0, 0)


def test_an_enqueue_that_is_refused_before_takes_the_business_row_along(transactional_db):
    with pytest.raises(InvalidPayload):
        order_and_enqueue("x" * 200_000)
    assert (Group.objects.count(), Job.objects.count()) == (0, 0)


current: list[Watch] = []  # the view has no other way to the test's fixtures
xids: list[str] = []


def view(request: HttpRequest, ending: str) -> HttpResponse:
    assert connection.in_atomic_block
    record.enqueue(key=f"request-{ending}")
    xids.append(transaction_id())
    current[-1].looks_again()
    assert current[-1].started() == set()
    if ending == "error":
        raise UndoError
    return HttpResponse("done")


urlpatterns = [path("<str:ending>", view)]


@pytest.mark.parametrize("ending", ["success", "error"])
def test_with_atomic_requests_the_response_decides(watch, monkeypatch, settings, ending):
    settings.ROOT_URLCONF, settings.ALLOWED_HOSTS = __name__, ["*"]
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)  # noqa: FBT003
    current.append(watch)
    Client(raise_request_exception=False).get(f"/{ending}")
    if ending == "success":
        assert_started_after_commit(watch, "request-success", xids[-1])
    else:
        assert not Job.objects.filter(payload__key="request-error").exists()
        watch.looks_again()
        assert watch.started() == set()
