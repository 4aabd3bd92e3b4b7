"""An enqueued job shares the fate of the caller's transaction, whatever kind of one it is."""

from __future__ import annotations

from contextlib import suppress

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.exceptions import SynchronousOnlyOperation
from django.db import IntegrityError, connection, connections, migrations, transaction
from django.db.migrations.state import ProjectState
from django.db.models.signals import post_save
from django.db.transaction import TransactionManagementError
from django.http import HttpResponse
from django.urls import path

from django_pgjobs import aenqueue, enqueue, get_job, job
from django_pgjobs.models import Job
from tests.db.rows import row

pytestmark = pytest.mark.django_db

ENQUEUE = {
    "by name": lambda i: enqueue("noop", i=i),
    "through the function": lambda i: get_job("noop").enqueue(i),
    "many": lambda i: get_job("noop").enqueue_many([{"i": i}]),
    "async by name": lambda i: async_to_sync(aenqueue)("noop", i=i),
    "async through the function": async_to_sync(get_job("noop").aenqueue),
}
all_ways = pytest.mark.parametrize("enqueue_noop", ENQUEUE.values(), ids=ENQUEUE)
committing = pytest.mark.django_db(transaction=True)


def stored():
    """What this connection sees."""
    return sorted(job.payload["i"] for job in Job.objects.all())


@pytest.fixture
def committed(other_session):
    """What another session sees, such as a worker's."""
    other_session.autocommit = True
    select = "select (payload->>'i')::int from django_pgjobs_job order by 1"
    return lambda: [i for (i,) in other_session.execute(select)]


@committing
@all_ways
def test_a_job_exists_for_others_from_the_commit_on(enqueue_noop, committed):
    with transaction.atomic():
        enqueue_noop(1)
        assert stored() == [1]
        assert committed() == []

    assert committed() == [1]


@committing
@all_ways
def test_a_job_is_gone_with_the_rollback(enqueue_noop, committed):
    with suppress(ZeroDivisionError), transaction.atomic():
        enqueue_noop(1)
        raise ZeroDivisionError

    assert committed() == []


@committing
@all_ways
def test_without_a_transaction_a_job_is_committed_at_once(enqueue_noop, committed):
    enqueue_noop(1)

    assert committed() == [1]


@committing
@all_ways
def test_a_savepoints_rollback_takes_its_own_jobs_alone(enqueue_noop, committed):
    with transaction.atomic():
        enqueue_noop(1)
        with suppress(ZeroDivisionError), transaction.atomic():
            enqueue_noop(2)
            raise ZeroDivisionError
        with transaction.atomic():
            enqueue_noop(3)
        assert committed() == []

    assert committed() == [1, 3]


@committing
@all_ways
def test_the_rollback_of_the_outer_block_takes_the_jobs_of_a_released_savepoint(
    enqueue_noop, committed
):
    with suppress(ZeroDivisionError), transaction.atomic():
        with transaction.atomic():
            enqueue_noop(1)
        raise ZeroDivisionError

    assert committed() == []


@committing
def test_in_a_durable_block_a_job_is_committed_with_it(committed):
    with transaction.atomic(durable=True):
        enqueue("noop", i=1)
        assert committed() == []

    assert committed() == [1]


@committing
def test_set_rollback_takes_the_job(committed):
    with transaction.atomic():
        enqueue("noop", i=1)
        transaction.set_rollback(True)

    assert committed() == []


@committing
def test_with_autocommit_off_a_job_waits_for_the_callers_commit(committed):
    transaction.set_autocommit(False)
    try:
        enqueue("noop", i=1)
        assert committed() == []
        transaction.commit()
        assert committed() == [1]
        enqueue("noop", i=2)
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)

    assert committed() == [1]


def enqueueing_view(request, i):
    enqueue("noop", i=i)
    if "fail" in request.GET:
        raise ZeroDivisionError
    return HttpResponse(str(connection.in_atomic_block))


urlpatterns = [path("enqueue/<int:i>/", enqueueing_view)]


@committing
def test_with_atomic_requests_a_job_is_committed_with_the_request(
    client, settings, monkeypatch, committed
):
    settings.ROOT_URLCONF = __name__
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)  # noqa: FBT003

    assert client.get("/enqueue/1/").content == b"True"
    with pytest.raises(ZeroDivisionError):
        client.get("/enqueue/2/?fail")

    assert committed() == [1]


@committing
def test_without_atomic_requests_a_job_outlives_a_view_that_fails(client, settings, committed):
    settings.ROOT_URLCONF = __name__
    with pytest.raises(ZeroDivisionError):
        client.get("/enqueue/2/?fail")

    assert committed() == [2]


@committing
@pytest.mark.parametrize("fail", [False, True])
def test_a_job_of_a_signal_handler_belongs_to_the_transaction_of_the_save(fail, committed):
    def enqueue_for(instance, **_kwargs):
        enqueue("noop", i=instance.pk)
        if fail:
            raise ZeroDivisionError

    post_save.connect(enqueue_for, sender=User)
    try:
        with suppress(ZeroDivisionError), transaction.atomic():
            User(pk=5, username="u").save()
    finally:
        post_save.disconnect(enqueue_for, sender=User)

    assert committed() == ([] if fail else [5])
    assert User.objects.count() == (0 if fail else 1)


@committing
def test_a_job_enqueued_on_commit_exists_after_it(committed):
    with transaction.atomic():
        transaction.on_commit(lambda: enqueue("noop", i=1))
        assert stored() == []

    assert committed() == [1]


@committing
@pytest.mark.parametrize("fail", [False, True])
def test_a_job_of_a_data_migration_belongs_to_its_transaction(fail, committed):
    def forwards(apps, schema_editor):
        enqueue("noop", i=1)
        if fail:
            raise ZeroDivisionError

    operation = migrations.RunPython(forwards)

    def migrate():
        with connection.schema_editor(atomic=True) as editor:
            operation.database_forwards("app", editor, ProjectState(), ProjectState())

    with suppress(ZeroDivisionError):
        migrate()

    assert committed() == ([] if fail else [1])


def test_in_a_broken_transaction_django_says_so():
    with transaction.atomic():
        with pytest.raises(IntegrityError), transaction.atomic(savepoint=False):
            Job.objects.create(kind="")
        with pytest.raises(TransactionManagementError, match="until the end of the 'atomic' block"):
            enqueue("noop", i=1)
        transaction.set_rollback(True)


def test_from_async_code_the_sync_verb_is_refused_as_any_query_is():
    async def view():
        enqueue("noop", i=1)

    with pytest.raises(SynchronousOnlyOperation):
        async_to_sync(view)()

    assert stored() == []


def test_a_job_has_the_payload_of_the_moment_it_was_enqueued(kinds):
    @job
    def take(items): ...

    items = [1, {"a": [2]}]

    enqueued = take.enqueue(items)
    items.append(3)
    items[1]["a"].clear()

    assert row(enqueued)["payload"] == {"items": [1, {"a": [2]}]}
    assert enqueued.payload == {"items": [1, {"a": [2]}]}
