"""The trigger that notifies of what plain SQL inserts: once a queue and statement, of due jobs alone."""

from __future__ import annotations

import psycopg
import pytest
from django.db import connection, transaction
from django.db.migrations.state import ProjectState
from django.db.migrations.writer import OperationWriter

from django_pgjobs import notify
from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.models import Job
from django_pgjobs.operations import NotifyOnInsert
from tests.app.jobs import noop
from tests.db.rows import FUTURE
from tests.db.test_notify import Ears
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def run(operation, *, backwards=False):
    """Run an operation in a migration of its own."""
    with connection.schema_editor() as editor:
        act = operation.database_backwards if backwards else operation.database_forwards
        act("shop", editor, ProjectState(), ProjectState())


@pytest.fixture
def install(transactional_db, monkeypatch):
    monkeypatch.setattr(notify, "_sent", {})
    installed = []

    def do(*arguments, **options):
        installed.append(NotifyOnInsert(*arguments, **options))
        run(installed[-1])

    yield do
    for operation in installed:
        run(operation, backwards=True)


@pytest.fixture
def ears(database_url):
    with psycopg.connect(database_url, autocommit=True) as session:
        yield Ears(session)


def insert(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"insert into django_pgjobs_job {sql}")


def test_plain_sql_wakes_nobody_by_itself(ears):
    insert("(kind) values ('noop')")
    assert ears.heard() == []


def test_one_notification_for_each_queue_and_statement(install, ears):
    install()
    insert("(kind, queue) select 'noop', 'q' || i % 3 from generate_series(1, 30) i")
    assert sorted(ears.heard()) == ["q0", "q1", "q2"]
    insert("(kind) values ('noop')")
    assert ears.heard() == ["default"]


def test_it_is_sent_with_the_commit(install, ears):
    install()
    with transaction.atomic():
        insert("(kind) values ('noop')")
        assert ears.heard() == []
    assert ears.heard() == ["default"]
    with transaction.atomic():
        insert("(kind) values ('noop')")
        transaction.set_rollback(True)
    assert ears.heard() == []


def test_nothing_is_said_of_delayed_jobs_nor_of_what_does_not_wait(install, ears):
    install()
    insert(
        "(kind, queue, run_at) values ('noop', 'later', statement_timestamp() + interval '1 s'), "
        "('noop', 'now', statement_timestamp())"
    )
    assert ears.heard() == ["now"]
    insert("(kind, status, finished_at) values ('noop', 'done', now())")
    insert("(kind) select 'noop' where false")
    assert ears.heard() == []


def test_of_certain_queues_alone(install, ears):
    install(["mail", "it's 5%".replace(" ", "_")])
    insert("(kind, queue) values ('noop', 'mail'), ('noop', 'other'), ('noop', 'it''s_5%')")
    assert sorted(ears.heard()) == ["it's_5%", "mail"]


def test_what_enqueue_sends_comes_beside_it_and_no_more_often(install, ears):
    install()
    noop.enqueue()
    assert ears.heard() == ["default", "default"]
    noop.using(run_at=FUTURE).enqueue()
    assert ears.heard() == []
    noop.using(queue="many").enqueue_many({"i": i} for i in range(100))
    assert ears.heard() == ["many", "many"]


def test_a_worker_that_does_not_poll_starts_a_job_of_plain_sql(install, processes):
    install()
    worker = processes.worker("--poll", "3600", PGJOBS_TEST_LOG_LEVEL="INFO")
    eventually(lambda: "INFO django_pgjobs.listener: Listening" in worker.output, within=20)
    noop.enqueue()
    eventually(lambda: Job.objects.done().exists(), within=5)
    for count in (2, 3):  # one after the other: no look for one finds the next
        insert("(kind) values ('noop')")
        eventually(lambda count=count: Job.objects.done().count() == count, within=5)
    assert worker.stop() == 0, worker.output


def test_reversed_nothing_is_left_of_it(install, ears):
    operation = NotifyOnInsert(queues=["mail"])
    run(operation)
    run(operation, backwards=True)
    insert("(kind, queue) values ('noop', 'mail')")
    assert ears.heard() == []
    with connection.cursor() as cursor:
        cursor.execute("select to_regprocedure('django_pgjobs_notify()')")
        assert cursor.fetchone() == (None,)


@pytest.mark.parametrize("queues", ["mail", ["a b"], [""], ["x" * 64], [1]])
def test_queues_are_a_list_of_names(queues):
    with pytest.raises(InvalidOption):
        NotifyOnInsert(queues=queues)


@pytest.mark.parametrize("queues", [[], ["mail", "sms"]])
def test_it_can_be_written_into_a_migration(queues):
    text, imports = OperationWriter(NotifyOnInsert(queues), indentation=0).serialize()
    scope = {}
    exec("\n".join(imports) + f"\noperation = {text.rstrip(',')}", scope)  # noqa: S102
    assert scope["operation"].queues == queues
    assert scope["operation"].migration_name_fragment == "notify_on_insert"
    assert scope["operation"].describe().startswith("Notify workers")
