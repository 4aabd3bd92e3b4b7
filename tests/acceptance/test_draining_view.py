"""The view that drains: who may call it, how much it does, and that nothing of it stays in the process."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from datetime import timedelta

import pytest
from django.db import connection, connections, transaction
from django.db.models.functions import Now
from django.test import AsyncClient, Client
from django.urls import path

from django_pgjobs import enqueue, job
from django_pgjobs.exceptions import InvalidOption, PgJobsError
from django_pgjobs.keeper import Keeper
from django_pgjobs.models import Job, Schedule, Worker
from django_pgjobs.views import DrainView
from tests.db.rows import AGO, make, make_worker, row
from tests.db.sessions import in_thread
from tests.waiting import eventually

TOKEN = "0123456789abcdef-fedcba9876543210"  # noqa: S105 -- of these tests
QUICK = {"seconds": 1, "shutdown_timeout": 1}
urlpatterns = [
    path("drain", DrainView.as_view()),
    path("two", DrainView.as_view(max_jobs=2, threads=1)),
    path("mail", DrainView.as_view(queues=["mail"])),
    path("one", DrainView.as_view(threads=1)),
    path("quick", DrainView.as_view(**QUICK)),
    path("one/patient", DrainView.as_view(threads=1, seconds=1, shutdown_timeout=20)),
]
pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.urls(__name__),
]


@pytest.fixture(autouse=True)
def drain_token(settings):
    settings.PGJOBS = {"DRAIN_TOKEN": TOKEN}


def call(where="drain", token=TOKEN, client=None, **extra):
    client = client or Client(enforce_csrf_checks=True)
    return client.post(f"/{where}", headers={"Authorization": f"Bearer {token}"}, **extra)


def answer(where="drain"):
    response = call(where)
    assert response.status_code == 200
    return response.json()


def statuses():
    return dict(Counter(Job.objects.values_list("status", flat=True)))


# ----------------------------------------------------------------------------------- who may call


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN.upper()}",
        "Bearer ä\u20ac",
        f"Bearer {TOKEN} {TOKEN}",
    ],
)
def test_without_the_token_no_job_is_run(header):
    queued = enqueue("noop")

    headers = {} if header is None else {"Authorization": header}
    response = Client().post(f"/drain?token={TOKEN}", {"token": TOKEN}, headers=headers)

    assert response.status_code == 401
    assert response["WWW-Authenticate"] == "Bearer"
    assert response["Cache-Control"] == "no-store"
    assert row(queued)["status"] == "pending"


@pytest.mark.parametrize("method", ["get", "head", "put", "delete", "options"])
def test_only_a_post_runs_jobs(method):
    queued = enqueue("noop")

    send = getattr(Client(), method)
    response = send("/drain", headers={"Authorization": f"Bearer {TOKEN}"})

    assert response.status_code == 405
    assert response["Allow"] == "POST"
    assert response["Cache-Control"] == "no-store"
    assert row(queued)["status"] == "pending"


@pytest.mark.parametrize("token", ["", "None", TOKEN])
def test_where_no_token_is_set_there_is_no_such_page(settings, token):
    settings.PGJOBS = {}
    queued = enqueue("noop")

    assert call(token=token).status_code == 404
    assert row(queued)["status"] == "pending"


def test_a_project_that_demands_a_login_demands_none_here(settings):
    login = "django.contrib.auth.middleware.LoginRequiredMiddleware"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, login]
    queued = enqueue("noop")

    assert answer() == {"done": 1, "failed": 0, "left": "nothing"}
    assert row(queued)["status"] == "done"


# --------------------------------------------------------------------------------- what it drains


def test_it_runs_what_is_due_and_says_what_became_of_it(kinds):
    @job(max_attempts=1)
    def leave_by(error: str) -> None:
        raise {"exit": SystemExit(3), "value": ValueError("no")}[error]

    @job
    async def enqueue_more() -> None:
        await leave_by.aenqueue(error="value")

    fine = enqueue("add", a=1, b=2)
    leave_by.enqueue(error="exit")
    enqueue_more.enqueue()
    later = leave_by.using(delay=60).enqueue(error="value")

    assert answer() == {"done": 2, "failed": 2, "left": "nothing"}
    assert row(fine)["result"] == 3
    assert row(later)["status"] == "pending"
    assert statuses() == {"done": 2, "failed": 2, "pending": 1}
    assert answer() == {"done": 0, "failed": 0, "left": "nothing"}


def test_it_does_no_more_than_so_many_jobs():
    for _ in range(5):
        enqueue("noop")

    assert [answer("two") for _ in range(3)] == [
        {"done": 2, "failed": 0, "left": "more"},
        {"done": 2, "failed": 0, "left": "more"},
        {"done": 1, "failed": 0, "left": "nothing"},
    ]


def test_it_serves_the_queues_that_it_was_given(kinds):
    @job(queue="mail")
    def send() -> None: ...

    sent, other = send.enqueue(), enqueue("noop")

    assert answer("mail")["done"] == 1
    assert [row(sent)["status"], row(other)["status"]] == ["done", "pending"]


def test_an_atomic_job_and_a_queue_claimed_by_transaction_are_run_too(kinds, settings):
    settings.PGJOBS |= {"QUEUES": {"ledger": {"claim": "transaction"}}}

    @job(atomic=True)
    def book() -> None: ...

    @job(queue="ledger")
    def note() -> None: ...

    book.enqueue()
    note.enqueue()

    assert answer() == {"done": 2, "failed": 0, "left": "nothing"}


@pytest.fixture
def idle_keeper(monkeypatch):
    """Have the thread of the heartbeats come to nothing in time: all depends on what is done first."""
    monkeypatch.setattr(Keeper, "keep", lambda *_, **__: ([], 10.0))


@pytest.mark.usefixtures("idle_keeper")
def test_what_a_dead_call_held_is_run_by_the_next_one():
    dead = make_worker(heartbeat_at=AGO, started_at=AGO)
    charged = make("running", locked_by=dead.id)
    gone = make_worker(heartbeat_at=AGO, died_at=AGO, death="gone", started=[])
    unstarted = make("running", locked_by=gone.id)

    assert answer() == {"done": 1, "failed": 0, "left": "nothing"}
    assert row(unstarted)["status"] == "done"
    assert row(charged)["status"] == "pending"
    assert "no heartbeat" in row(charged)["last_error"]


@pytest.mark.usefixtures("idle_keeper")
def test_schedules_that_are_due_fire_and_their_jobs_are_run():
    Schedule.objects.create(
        name="one",
        kind="noop",
        every=timedelta(minutes=1),
        since=Now() - timedelta(seconds=90),
        next_at=Now() - timedelta(seconds=30),
    )

    assert answer() == {"done": 1, "failed": 0, "left": "nothing"}
    assert answer() == {"done": 0, "failed": 0, "left": "nothing"}


def test_two_calls_share_the_work(kinds):
    both = threading.Barrier(2)

    @job(priority=1, max_attempts=1)
    def meet() -> None:
        both.wait(20)

    meet.enqueue_many({} for _ in range(2))
    for _ in range(20):
        enqueue("noop")

    with in_thread(lambda: answer("one")) as other:
        answers = [answer("one"), other()]

    assert sum(each["done"] for each in answers) == 22
    assert statuses() == {"done": 22}
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}


# ------------------------------------------------------------------------------------ time is over


def test_no_job_starts_once_its_time_is_over_and_what_runs_may_end(kinds, settings):
    settings.PGJOBS |= {"HEARTBEAT": 0.1, "LEASE": 20}
    gate = threading.Event()

    @job
    def wait_for_the_end() -> None:
        gate.wait(20)

    wait_for_the_end.enqueue_many({} for _ in range(3))

    with in_thread(lambda: answer("one/patient")) as said:
        eventually(lambda: Worker.objects.filter(stopping_at__isnull=False).exists())
        gate.set()

    assert said() == {"done": 1, "failed": 0, "left": "more"}
    assert statuses() == {"done": 1, "pending": 2}


@pytest.mark.parametrize("how", ["sync", "async", "own timeout"])
def test_what_runs_too_long_is_told_to_stop_and_has_had_an_attempt(kinds, how):
    ended = []

    @job(timeout=0.3 if how == "own timeout" else 60)
    def go_round() -> None:
        try:
            while True:
                time.sleep(0.01)
        finally:
            ended.append(how)

    @job
    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(how)

    queued = (wait if how == "async" else go_round).enqueue()

    left = "nothing" if how == "own timeout" else "more"
    assert answer("quick") == {"done": 0, "failed": 1, "left": left}
    assert ended == [how]
    told = "its timeout of 0.3 s" if how == "own timeout" else "the time that it had"
    now = row(queued)
    assert told in now["last_error"]
    assert (now["status"], now["attempts"]) == ("pending", 1)


def test_a_handler_that_does_not_stop_keeps_no_caller_waiting(kinds):
    gate = threading.Event()

    @job
    def deaf() -> None:
        gate.wait()

    queued = deaf.enqueue()

    try:
        assert answer("quick") == {"done": 0, "failed": 1, "left": "more"}
        assert row(queued)["status"] == "pending"
        assert [t.name for t in ours()] == ["pgjobs-handler-1"]
    finally:
        gate.set()
    eventually(lambda: not ours())
    assert row(queued)["attempts"] == 1, "what it returns so late changes nothing"


# ------------------------------------------------------------------------- in a process that goes on


def ours():
    return [t for t in threading.enumerate() if t.name.startswith("pgjobs-")]


def sessions():
    with connection.cursor() as cursor:
        cursor.execute(
            "select count(*) from pg_stat_activity where datname = current_database()"
            " and pid <> pg_backend_pid()"
        )
        return cursor.fetchone()[0]


def handlers_of_signals():
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]


def test_nothing_of_it_stays_in_the_process(kinds):
    seen = []

    @job
    def ask_the_database() -> None:
        Job.objects.count()
        seen.append(handlers_of_signals())

    @job
    async def aask_the_database() -> None:
        await Job.objects.acount()

    signals, health = handlers_of_signals(), dict(connections.settings["default"])
    before = sessions()
    backend = connection.connection.info.backend_pid
    ask_the_database.enqueue()
    aask_the_database.enqueue()

    assert answer()["done"] == 2
    assert ours() == []
    assert [signals, *seen] == [signals, signals]
    assert connections.settings["default"] == health
    assert eventually(lambda: sessions() == before)
    assert connection.connection.info.backend_pid == backend, "the request's own stays open"
    assert set(Worker.objects.values_list("death", flat=True)) == {"stopped"}


def test_it_works_in_another_thread_than_the_main_one():
    enqueue("noop")

    with in_thread(answer) as said:
        pass

    assert said() == {"done": 1, "failed": 0, "left": "nothing"}


def test_it_works_under_asgi():
    enqueue("noop")
    enqueue("anoop")

    async def drain():
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return await AsyncClient().post("/drain", headers=headers)

    assert asyncio.run(drain()).json() == {"done": 2, "failed": 0, "left": "nothing"}
    assert ours() == []


def test_no_request_s_transaction_surrounds_it(monkeypatch):
    for alias in ("default", "other"):
        monkeypatch.setitem(connections.settings[alias], "ATOMIC_REQUESTS", True)  # noqa: FBT003 -- it takes no name
    enqueue("noop")

    assert answer()["done"] == 1


def test_inside_a_transaction_it_refuses_and_names_what_works():
    with transaction.atomic():
        queued = enqueue("noop")
        with pytest.raises(PgJobsError, match="TransactionTestCase"):
            call()
    assert row(queued)["status"] == "pending"


def test_a_database_that_is_out_of_reach_is_an_answer_and_not_a_crash(monkeypatch, caplog):
    monkeypatch.setitem(connections.settings["default"], "PORT", "1")
    response = call()

    assert response.status_code == 503
    assert TOKEN not in response.content.decode()
    assert "No batch can be drained" in caplog.text
    assert ours() == []


def test_a_process_that_is_killed_in_a_call_loses_no_job(processes):
    """As a platform does that has no patience: the next call finds what the dead one held."""
    code = "drain-and-die"
    queued = enqueue("leave", key=code, how="kill")
    worker = processes.worker("--drain", "--max-jobs", "1")
    assert worker.wait() == -signal.SIGKILL
    assert row(queued)["status"] == "running"
    Worker.objects.update(heartbeat_at=AGO)

    answer()

    assert row(queued)["status"] == "pending"
    assert row(queued)["attempts"] == 1


# ----------------------------------------------------------------------------- arguments of as_view


@pytest.mark.parametrize(
    "given",
    [
        {"max_jobs": 0},
        {"max_jobs": 10**9},
        {"max_jobs": True},
        {"max_jobs": "5"},
        {"max_jobs": 1.5},
        {"seconds": 0},
        {"seconds": 3_601},
        {"seconds": float("nan")},
        {"seconds": None},
        {"shutdown_timeout": 0.5},
        {"threads": 101},
        {"queues": "mail"},
        {"queues": []},
        {"queues": ["a b"]},
    ],
    ids=repr,
)
def test_what_cannot_be_is_refused_where_it_is_written(given):
    with pytest.raises(InvalidOption, match=", got"):
        DrainView.as_view(**given)


def test_a_request_chooses_nothing():
    for _ in range(3):
        enqueue("noop")

    response = call("two?max_jobs=100&queues=x", data={"max_jobs": 100, "seconds": os.getpid()})

    assert response.json() == {"done": 2, "failed": 0, "left": "more"}
