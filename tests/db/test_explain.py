"""Why a job is not running: every answer, each where it is true."""

from __future__ import annotations

import datetime
import random

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from django_pgjobs import Limit, Rate, explaining, explanations, get_job, job
from django_pgjobs.board import Board
from django_pgjobs.claims import Claimer
from django_pgjobs.leases import Lease
from django_pgjobs.models import Gate, Job, Queue, Worker
from django_pgjobs.testing import drain
from django_pgjobs.worker_options import WorkerOptions
from tests.app.jobs import boom, noop
from tests.db import rows
from tests.db.limited import claimer, declare, taken

pytestmark = pytest.mark.django_db


def worker(**told) -> int:
    """Register a worker that knows what this code knows now."""
    board = Board.create(1)
    board.close()
    given = {"queues": None, "threads": 1, **told}
    return Lease.register(rows.execute, board, pid=1, **given).worker


def answer(asked: Job, /, **facts) -> str:
    """What is answered; `facts` are those that must be among it, and in its text."""
    found = asked.explain()
    assert {name: found.facts[name] for name in facts} == facts
    said = [value for name, value in facts.items() if isinstance(value, int | str) and value]
    assert [value for value in said if str(value) not in found.text] == []
    assert "%(" not in str(found)
    return found.answer


def all_jobs():
    return Job.objects.order_by("id")


# ------------------------------------------------------------------------------------ not waiting


def test_a_job_that_is_not_there():
    assert answer(Job(pk=10**9)) == "gone"
    assert answer(Job()) == "gone"


def test_a_job_that_is_done():
    done = noop.enqueue()
    drain()
    assert answer(done) == "done"


def test_a_job_that_was_given_up_says_why():
    failed = boom.using(max_attempts=1).enqueue(message="no stock")
    drain()
    assert answer(failed, attempt=1, error="ValueError: no stock") == "failed"


def test_a_job_that_was_cancelled():
    cancelled = noop.enqueue()
    cancelled.cancel()
    assert answer(cancelled) == "cancelled"


def test_a_blocked_job():
    blocked = rows.make("blocked")
    assert answer(blocked) == "blocked"
    assert "reserved" in blocked.explain().text


def test_a_running_job_names_its_worker_and_that_it_was_asked_to_stop():
    running, by = noop.enqueue(), worker()
    rows.claimed(worker=by)
    assert answer(running, worker=str(Worker.objects.get()), worker_id=by) == "running"
    running.cancel()
    assert answer(running, worker_id=by) == "stopping"


@pytest.mark.parametrize("fate", [{"died_at": rows.AGO}, {"heartbeat_at": rows.AGO}, None])
def test_a_job_whose_worker_is_gone(fate):
    running = noop.enqueue()
    if fate:
        by = worker()
        rows.claimed(worker=by)
        Worker.objects.update(**fate)
    else:
        rows.claimed(worker=7)
        assert answer(running, worker="#7") == "running"
        Job.objects.update(locked_at=rows.AGO)
    assert answer(running) == "lost"


# ---------------------------------------------------------------------------------------- waiting


def test_a_delayed_job_says_until_when_and_for_which_attempt():
    delayed, by = noop.using(delay=60).enqueue(), worker()
    Queue.objects.create(name="default", paused_at=rows.AGO)
    delayed.refresh_from_db()
    assert answer(delayed, until=delayed.run_at, attempt=1) == "delayed"
    Queue.objects.all().delete()
    again = boom.enqueue()
    drain()
    assert answer(again, attempt=2) == "delayed"
    assert by


def test_a_job_in_a_paused_queue_says_who_paused_it():
    waiting, _ = noop.enqueue(), worker()
    Queue.objects.create(name="default", paused_at=rows.AGO, paused_by="ada")
    assert answer(waiting, queue="default", by="ada", at=rows.AGO) == "paused"
    Queue.objects.update(paused_at=None)
    assert answer(waiting) == "next"


UNSERVING = {
    "none": None,
    "of other queues": {"queues": ["mail", "default2"]},
    "that leave it out": {"exclude": ["default"]},
    "that are stopping": {"stopping_at": rows.AGO},
    "that are silent": {"heartbeat_at": rows.AGO},
    "that are dead": {"died_at": rows.AGO},
}


@pytest.mark.parametrize("workers", UNSERVING)
def test_a_job_whose_queue_no_living_worker_serves(workers):
    waiting, columns = noop.enqueue(), UNSERVING[workers]
    if columns is not None:
        by = worker(**{k: v for k, v in columns.items() if k in ("queues", "exclude")})
        Worker.objects.filter(pk=by).update(**columns)
    living = int(workers in ("of other queues", "that leave it out"))
    assert answer(waiting, queue="default", living=living) == "unserved"
    worker(queues=["default"])
    assert answer(waiting) == "next"


@pytest.mark.parametrize("by_transaction", [True, ["default"]])
def test_a_job_with_a_key_where_jobs_are_claimed_by_transaction(by_transaction):
    worker(by_transaction=by_transaction)
    keyed = rows.make(concurrency_key="a")
    assert answer(keyed, key="a", queue="default") == "keys_unserved"
    assert answer(rows.make()) == "next"
    worker(by_transaction=["mail"])
    assert answer(keyed) == "next"


def test_a_job_of_a_kind_that_no_living_worker_knows(kinds):
    by = worker()
    new = job(kind="brand_new", aliases=["older"])(lambda: None)
    waiting = new.enqueue()
    assert answer(waiting, kind="brand_new") == "unknown_kind"
    worker(queues=["mail"])
    assert answer(waiting) == "unknown_kind"
    worker()
    assert answer(waiting) == "next"
    Worker.objects.exclude(pk=by).exclude(queues=["mail"]).update(died_at=rows.AGO)
    assert answer(waiting) == "unknown_kind"
    worker()
    assert answer(rows.make(kind="older")) == "next"


# ----------------------------------------------------------------------------------------- limits


def test_a_key_that_is_held_says_by_which_jobs(kinds):
    call = declare(concurrency=Limit(2, key="customer"))
    jobs = [call.enqueue(customer=7) for _ in range(4)]
    other, by = call.enqueue(customer=8), worker()
    assert [one.id for one in taken(by=claimer(by))][:2] == [jobs[0].pk, jobs[1].pk]
    held_by = [jobs[0].pk, jobs[1].pk]
    assert answer(jobs[3], key="call:7", limit=2, running=2, held_by=held_by) == "key_limit"
    assert str(jobs[1].pk) in jobs[3].explain().text
    assert answer(other) == "running"


def test_of_kinds_that_share_a_key_the_smallest_limit_at_work_counts(kinds):
    declare("one", concurrency=Limit(1)).using(concurrency_key="k").enqueue()
    by = worker()
    taken(by=claimer(by))
    declare("many", concurrency=Limit(9))
    worker()
    many = get_job("many").using(concurrency_key="k").enqueue()
    assert answer(many, limit=1) == "key_limit"


def test_a_key_of_a_kind_without_limits_is_one_at_a_time(kinds):
    first, second = (rows.make(concurrency_key="k") for _ in range(2))
    by = worker()
    assert rows.ids(taken(by=claimer(by))) == [first.pk]
    assert answer(second, limit=1, held_by=[first.pk]) == "key_limit"


def test_a_later_one_in_order_waits_for_the_first(kinds):
    apply = declare("apply", concurrency=Limit(1, key="customer"), ordered=True)
    first, second, third = (apply.enqueue(customer=7) for _ in range(3))
    by = worker()
    assert answer(first) == "next"
    Job.objects.filter(pk=first.pk).update(run_at=rows.FUTURE, attempts=1)
    assert answer(third, job=first.pk) == "order"
    Job.objects.filter(pk=first.pk).update(run_at=rows.AGO)
    taken(by=claimer(by))
    assert answer(second, held_by=[first.pk]) == "key_limit"


def test_a_rate_says_when_the_next_token_is(kinds):
    call = declare(rate=Rate(1, per=60, burst=1, key="customer"))
    jobs = [call.enqueue(customer=7) for _ in range(3)]
    by = worker()
    assert rows.ids(taken(by=claimer(by))) == [jobs[0].pk, jobs[1].pk]
    gate = Gate.objects.get(name="key:call:7")
    until = gate.next_at - datetime.timedelta(seconds=60)
    assert answer(jobs[2], key="call:7", until=until) == "key_rate"
    Gate.objects.update(next_at=F("next_at") - datetime.timedelta(seconds=61))
    assert answer(jobs[2]) == "next"
    assert rows.ids(taken(by=claimer(by))) == [jobs[2].pk]


def test_what_a_rate_has_set_that_is_not_declared_any_more_holds_back_nobody(kinds):
    call = declare(rate=Rate(1, per=3600))
    first, second = call.enqueue(), call.enqueue()
    by = worker()
    assert rows.ids(taken(by=claimer(by))) == [first.pk]
    assert answer(second) == "key_rate"
    del kinds["call"]
    declare(rate=Rate(1, per=60))
    worker()
    assert answer(second) == "next"


def test_a_limited_queue_says_who_holds_it(settings):
    settings.PGJOBS = {"QUEUES": {"default": {"concurrency": 1}}}
    first, second = noop.enqueue(), noop.enqueue()
    by = worker()
    assert answer(first) == "next"
    assert rows.ids(taken(by=claimer(by))) == [first.pk]
    assert answer(second, queue="default", limit=1, held_by=[first.pk]) == "queue_limit"


def test_the_rate_of_a_queue_says_when_the_next_token_is(settings):
    settings.PGJOBS = {"QUEUES": {"default": {"rate": Rate(1, per=60)}}}
    first, second = noop.enqueue(), noop.enqueue()
    by = worker()
    assert rows.ids(taken(by=claimer(by))) == [first.pk]
    until = Gate.objects.get(name="queue:default").next_at
    assert answer(second, until=until, queue="default") == "queue_rate"


def test_limits_are_those_that_the_latest_worker_wrote_down(kinds):
    call = declare(concurrency=Limit(1))
    first, second = call.enqueue(), call.enqueue()
    by = worker()
    taken(by=claimer(by))
    assert answer(second, held_by=[first.pk]) == "key_limit"
    del kinds["call"]
    declare(concurrency=Limit(2))
    assert answer(second) == "key_limit"
    worker()
    assert answer(second) == "next"


# ---------------------------------------------------------------------------------------- in line


def test_the_line_is_that_in_which_a_worker_claims():
    chance = random.Random(7)  # noqa: S311 -- the same each time
    for _ in range(40):
        rows.make(
            queue=chance.choice(["a", "b"]),
            priority=chance.choice([-1, 0, 5]),
            run_at=rows.AGO + datetime.timedelta(seconds=chance.randrange(5)),
        )
    rows.make(queue="a", priority=50, run_at=rows.FUTURE)
    by = worker()
    line = {one.pk: one.explain().facts["behind"] for one in all_jobs()[:40]}
    order = [claim.id for claim in Claimer("default", by).claim(rows.execute, 100)]
    assert [line[pk] for pk in order] == list(range(40))


def test_only_queues_that_a_worker_of_it_serves_stand_before_it():
    for queue in ("served", "elsewhere", "paused"):
        rows.make(queue=queue, priority=9)
    Queue.objects.create(name="paused", paused_at=rows.AGO)
    worker(queues=["default", "served", "paused"])
    worker(queues=["elsewhere"])
    assert answer(noop.enqueue(), behind=1, workers=1) == "next"


def test_a_line_is_counted_up_to_a_number(monkeypatch):
    for module in (explaining, explanations):
        monkeypatch.setattr(module, "MOST", 3)
    worker()
    texts = [noop.enqueue().explain().text for _ in range(6)]
    assert "the next in line" in texts[0]
    assert "behind 1 job." in texts[1]
    assert "behind 2 jobs." in texts[2]
    assert [("behind 3 jobs or more." in text) for text in texts] == [False] * 3 + [True] * 3


def test_a_job_with_a_key_stands_in_the_line_of_its_key(kinds):
    call = declare(concurrency=Limit(2, key="customer"))
    worker()
    noop.using(priority=100).enqueue()
    call.using(priority=9).enqueue(customer=8)
    call.using(priority=9, delay=60).enqueue(customer=7)
    high = call.using(priority=5).enqueue(customer=7)
    first, second = call.enqueue(customer=7), call.enqueue(customer=7)
    assert [one.explain().facts["behind"] for one in (high, first, second)] == [0, 1, 2]
    assert rows.ids(taken())[:2] != [second.pk]


def test_a_job_with_a_key_is_told_that_keys_take_turns_and_who_stands_first(kinds, monkeypatch):
    wide, strict = (declare(f"upto{n}", concurrency=Limit(n)) for n in (5, 1))
    worker()
    wide.using(concurrency_key="partner").enqueue()
    assert len(taken()) == 1
    wide.using(concurrency_key="partner", priority=-9).enqueue()
    first = strict.using(concurrency_key="partner", priority=9).enqueue()
    second = wide.using(concurrency_key="partner").enqueue()
    assert answer(second, behind=1, key="partner", first=first.pk) == "next"
    assert answer(first) == "key_limit"
    with monkeypatch.context() as patch:
        patch.setattr(explaining, "MOST", 1)
        assert answer(second, behind=1, first=None) == "next"
    first.cancel()
    assert answer(second, behind=0, first=None) == "next"
    assert "Keys are served in turn" in second.explain().text
    assert "Keys" not in noop.enqueue().explain().text


def test_living_workers_that_do_not_know_the_kind_are_told(kinds):
    new = job(kind="brand_new")(lambda: None)
    knowing = worker()
    waiting = new.enqueue()
    assert answer(waiting, workers=1, unknowing=0) == "next"
    old = worker()
    Worker.objects.filter(pk=old).update(kinds={})
    assert knowing != old
    assert answer(waiting, workers=2, unknowing=1) == "next"
    assert "1 of them does not know its kind" in waiting.explain().text


def test_in_order_the_line_is_that_of_the_ids(kinds, monkeypatch):
    apply = declare("apply", concurrency=Limit(1, key="customer"), ordered=True)
    worker()
    first = apply.enqueue(customer=7)
    apply.using(priority=9).enqueue(customer=7)
    assert answer(first, behind=0) == "next"


@pytest.mark.parametrize("seed", range(12))
def test_what_is_answered_is_what_claims_do(kinds, settings, seed):
    chance = random.Random(seed)  # noqa: S311 -- the same each time
    settings.PGJOBS = {"QUEUES": {"slow": {"concurrency": 2}, "api": {"rate": Rate(2, per=900)}}}
    declare("two", concurrency=Limit(2, key="customer"))
    declare("rated", rate=Rate(1, per=900, burst=1, key="customer"))
    declare("ordered", concurrency=Limit(1, key="customer"), ordered=True)
    declare("free")
    Queue.objects.create(name="paused", paused_at=rows.AGO)
    by = worker(exclude=["elsewhere"])
    limited = claimer(by, exclude=["elsewhere"])

    for _ in range(3):
        for _ in range(15):
            kind = chance.choice(["two", "rated", "ordered", "free"])
            queue = chance.choice(["a", "b", "slow", "api", "paused", "elsewhere"])
            get_job(kind).using(
                queue=queue if chance.random() < 0.5 else "a",
                priority=chance.choice([0, 0, 7]),
                delay=chance.choice([-5, -1, 0, 900]),
            ).enqueue(customer=chance.randrange(3))
        waiting = {one.pk: (one, one.explain()) for one in Job.objects.pending()}
        free = Claimer("default", by, None, ["slow", "api", "elsewhere"])
        claimed = rows.ids(free.claim(rows.execute, 100))
        while some := rows.ids(taken(by=limited)):
            claimed += some
        for pk, (one, said) in waiting.items():
            at_the_head = said.answer == "next" and not said.facts["behind"]
            if at_the_head and one.queue not in (
                "slow",
                "api",
            ):  # where the head of which key goes?
                assert pk in claimed, (one.kind, one.queue, one.concurrency_key, said)
            if said.answer not in ("next", "order"):  # the one before it may have gone
                assert pk not in claimed, (one.kind, one.queue, one.concurrency_key, said)
        assert len(waiting) > len(claimed) > 0
        some = [pk for pk in claimed if chance.random() < 0.6]
        Job.objects.filter(pk__in=some).update(
            status="done", finished_at=rows.AGO, locked_at=None, locked_by=None
        )


# --------------------------------------------------------------------------------------- manners


def test_plain_sql_in_the_row_of_a_worker_breaks_nothing():
    waiting = noop.enqueue()
    for odd in (5, "default", [1, None], {"default": 1}, True, [["default"]]):
        Worker.objects.all().delete()
        rows.make_worker(queues=odd, exclude=odd, by_transaction=odd, kinds=odd, limited=odd)
        assert waiting.explain().text
    Worker.objects.all().delete()
    rows.make_worker(kinds={"noop": [1]}, limited={"default": "x"})
    assert answer(waiting) == "next"
    assert rows.make(concurrency_key="k").explain().answer == "next"


def test_it_speaks_the_language_that_is_active():
    waiting, _ = noop.enqueue(), worker()
    with translation.override("de"):
        assert "Reihe" in waiting.explain().text


def test_few_statements_answer(kinds):
    call = declare(concurrency=Limit(1))
    worker()
    for one, most in ((noop.enqueue(), 7), (call.enqueue(), 8), (rows.make("done"), 5)):
        with CaptureQueriesContext(connection) as queries:
            one.explain()
        assert len(queries) <= most, [query["sql"] for query in queries]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["for update", "for no key update", "for share"])
def test_a_locked_row_names_the_process_that_holds_it(other_session, how):
    waiting = noop.enqueue()
    assert answer(waiting) == "unserved"
    other_session.execute("savepoint one")
    other_session.execute(f"select from django_pgjobs_job where id = {waiting.pk} {how}")
    pid = other_session.info.backend_pid
    assert answer(waiting, process=pid) == "locked"
    other_session.rollback()
    assert answer(waiting) == "unserved"


@pytest.mark.django_db(transaction=True)
def test_a_worker_is_said_to_have_locked_a_row_only_where_one_claims_by_transaction(other_session):
    waiting = noop.enqueue()
    other_session.execute(f"select from django_pgjobs_job where id = {waiting.pk} for update")
    for by_transaction in (False, True):
        worker(by_transaction=by_transaction)
        assert answer(waiting) == "locked"
        found = waiting.explain()
        assert found.facts["by_transaction"] == by_transaction
        assert ("worker" in found.text) == by_transaction


def test_a_lock_whose_holder_is_not_known():
    found = explanations.Explanation(
        "locked", {"process": None, "at": None, "by_transaction": False}
    )
    assert "is not known" in found.text
    assert "None" not in found.text


@pytest.mark.django_db(transaction=True)
def test_it_keeps_no_lock_and_changes_nothing(other_session):
    waiting = noop.enqueue()
    worker()
    before = rows.row(waiting)
    with transaction.atomic():
        assert answer(waiting) == "next"
        found = other_session.execute(
            f"select id from django_pgjobs_job where id = {waiting.pk} for update skip locked"  # noqa: S608
        )
        assert found.fetchall() == [(waiting.pk,)]
        other_session.rollback()
    assert rows.row(waiting) == before


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["claimed", "locked"])
def test_a_row_that_changes_hands_meanwhile_is_looked_at_again(other_session, monkeypatch, how):
    number, waiting = worker(), rows.make()
    to_do = {
        "claimed": "update django_pgjobs_job set status = 'running', locked_at = now(), "
        "attempted_at = now(), claims = 1, attempts = 1, locked_by = %s where id = %s",
        "locked": "select %s::int from django_pgjobs_job where id = %s for update",
    }[how]
    on_django, left = explaining.execute_on_django, [to_do]

    def execute_on(alias):
        def execute(sql, params):
            if sql == explaining.obstacles.PROBE and left:
                other_session.execute(left.pop(), [number, waiting.pk])
                if how == "claimed":
                    other_session.commit()
            elif sql == explaining.obstacles.LOCKED_BY:
                other_session.rollback()
            return on_django(alias)(sql, params)

        return execute

    monkeypatch.setattr(explaining, "execute_on_django", execute_on)
    assert answer(waiting) == {"claimed": "running", "locked": "next"}[how]


@pytest.mark.django_db(transaction=True)
def test_where_nothing_can_be_locked_all_else_is_answered():
    waiting = noop.enqueue()
    worker()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("set transaction read only")
        assert answer(waiting) == "next"


def test_the_kinds_and_limits_are_written_down_at_the_start(kinds, settings):
    settings.PGJOBS = {
        "QUEUES": {"pdf": {"concurrency": 2}, "mail": {"claim": "transaction"}},
    }
    declare(concurrency=Limit(3, key="customer"))
    job(kind="new", aliases=["old"])(lambda: None)
    told = WorkerOptions(database="default", exclude=["x"]).told
    row = Worker.objects.get(pk=worker(**told))
    assert (row.queues, row.exclude, row.by_transaction) == (None, ["x"], ["mail"])
    assert row.kinds["call"] == {
        "kind": "call", "slots": 3, "every": 0, "burst": 0, "ordered": False
    }  # fmt: skip
    assert row.kinds["new"] is row.kinds["old"] is None
    assert row.limited == {"pdf": {"name": "pdf", "slots": 2, "every": 0, "burst": 0}}
    claims = [WorkerOptions(database="default", claim=c).told for c in ("lease", "transaction")]
    assert [one["by_transaction"] for one in claims] == [[], True]


def test_who_may_only_read_the_rows_is_answered_too():
    waiting = noop.enqueue()
    worker()
    with connection.cursor() as cursor:
        cursor.execute("create role explain_reader")
        cursor.execute("grant select on all tables in schema public to explain_reader")
        cursor.execute("set local role explain_reader")
        assert answer(waiting) == "next"
        cursor.execute("reset role")


@pytest.mark.django_db(transaction=True)
def test_behind_a_lock_on_the_table_it_does_not_wait_for_ever(other_session, monkeypatch):
    waiting = noop.enqueue()
    worker()
    soon = explaining.obstacles.SETTINGS.replace("'2s'", "'50ms'")
    monkeypatch.setattr(explaining.obstacles, "SETTINGS", soon)
    other_session.execute("lock table django_pgjobs_job in access exclusive mode")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("set local statement_timeout = '20s'")  # where it would wait for ever
        assert answer(waiting) == "table_locked"
        other_session.rollback()
        assert answer(waiting) == "next"
        cursor.execute("show lock_timeout")
        assert cursor.fetchone() == ("0",)


@pytest.mark.django_db(transaction=True)
def test_a_job_that_runs_under_a_lock_is_not_in_line(other_session):
    worker()
    first, _second, third = noop.enqueue(), noop.enqueue(), noop.enqueue()
    assert answer(third, behind=2) == "next"
    other_session.execute(f"select from django_pgjobs_job where id = {first.pk} for update")
    assert answer(third, behind=1) == "next"
    other_session.rollback()
    assert answer(third, behind=2) == "next"
