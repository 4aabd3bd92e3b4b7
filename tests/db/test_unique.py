"""Unique jobs: which are one, how long a key is held, and what becomes of an enqueue whose key is held."""

from __future__ import annotations

import datetime
import enum
import uuid

import pytest
from django.db import connection, transaction
from django.db.models import F

from django_pgjobs import (
    DuplicateJob,
    InvalidOption,
    InvalidPayload,
    PgJobsError,
    Unique,
    enqueue,
    get_job,
    job,
    reaper,
)
from django_pgjobs.claims import release
from django_pgjobs.models import Job, Worker
from django_pgjobs.outcomes import Done, Failed, settle
from tests.db.rows import AGO, FUTURE, claim_of, claimed, execute, make, make_worker, row

pytestmark = pytest.mark.django_db

ERROR = {"attempt": 1, "error": "E", "message": "", "traceback": "", "worker": "w"}
DAY = datetime.timedelta(days=1)
NOON = datetime.datetime(2030, 1, 1, 12, tzinfo=datetime.UTC)
PLAN = enum.Enum("Plan", {"FREE": "free"}, type=str).FREE


@pytest.fixture
def declare(kinds):
    def declare(*rule, **options):
        @job(kind="sync", unique=Unique(*rule, **options))
        def sync(a=None, b=None, **more): ...

        return sync

    return declare


def add(**options):
    return get_job("add").using(**options)


def end(job, status="done"):
    job.refresh_from_db()
    if status == "cancelled":
        job.cancel()
    elif status == "done":
        settle(execute, 7, [Done(claim_of(job))])
    else:
        settle(execute, 7, [Failed(claim_of(job), ERROR, None)])
    job.refresh_from_db()
    assert job.status == status


# ------------------------------------------------------------------------------- which jobs are one

SAME = [
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({"a": {"x": [1], "y": {}}}, {"a": {"y": {}, "x": [1]}}),
    ({"a": (1, 2)}, {"a": [1, 2]}),
    ({"a": uuid.UUID(int=1)}, {"a": uuid.UUID(int=1)}),
    ({"a": PLAN}, {"a": "free"}),
    ({"a": 1e23}, {"a": int(1e23)}),
]
DIFFERENT = [
    ({}, {"a": 1}),
    ({"a": 1}, {"a": 1, "b": None}),
    ({"a": 1}, {"a": 1.0}),
    ({"a": 1}, {"a": True}),
    ({"a": 1}, {"a": "1"}),
    ({"a": [1, 2]}, {"a": [2, 1]}),
    ({"a": "\u00e9"}, {"a": "e\u0301"}),
    ({"a": "1"}, {"b": "1"}),
    ({"a": uuid.UUID(int=1)}, {"a": str(uuid.UUID(int=1))}),
    ({"a": 0.0}, {"a": -0.0}),
    ({"a": NOON}, {"a": NOON.astimezone(datetime.timezone(datetime.timedelta(hours=1)))}),
]


@pytest.mark.parametrize(("first", "second"), [*SAME, *[pair[::-1] for pair in SAME]])
def test_equal_payloads_are_one_job(declare, first, second):
    sync = declare()

    assert sync.enqueue(**first) == sync.enqueue(**second)


@pytest.mark.parametrize(("first", "second"), [*DIFFERENT, *[pair[::-1] for pair in DIFFERENT]])
def test_other_payloads_are_other_jobs(declare, first, second):
    sync = declare()

    assert sync.enqueue(**first) != sync.enqueue(**second)


def test_a_positional_argument_is_the_same_as_a_named_one(declare):
    sync = declare()

    assert sync.enqueue(1, 2) == sync.enqueue(b=2, a=1)


@pytest.mark.parametrize(
    ("key", "same", "different"),
    [
        ("a", {"a": 1, "b": 3}, {"a": 2, "b": 2}),
        (["b", "a"], {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 3}),
        (("b", "c"), {"a": 9, "b": 2}, {"a": 1, "b": 2, "c": None}),
        (lambda payload: payload["a"] % 10, {"a": 11}, {"a": 12}),
    ],
)
def test_a_key_chooses_what_must_be_equal(declare, key, same, different):
    sync = declare(key)
    first = sync.enqueue(a=1, b=2)

    assert sync.enqueue(**same) == first
    assert sync.enqueue(**different) != first


def test_no_argument_at_all_makes_one_job_of_the_kind(declare):
    sync = declare(())

    assert sync.enqueue(a=1) == sync.enqueue(b=2)


def test_a_callable_that_returns_none_makes_no_key(declare):
    sync = declare(lambda payload: payload["a"])

    assert sync.enqueue(a=None).unique_key is None
    assert sync.enqueue(a=None) != sync.enqueue(a=None)
    assert len(set(sync.enqueue_many([{"a": None}, {"a": 1}, {"a": None}, {"a": 1}]))) == 3


def test_a_key_of_one_s_own_needs_no_rule():
    first = add(unique_key="x" * 3_000).enqueue(a=1)

    assert add(unique_key="x" * 3_000).enqueue(a=2) == first
    assert first.unique_key.startswith("finished:add:")
    assert add(unique_key="x").enqueue(a=1) != first
    assert add(unique_key="x" * 10**6).enqueue(a=1) != first
    assert add(unique_key=None).enqueue(a=1).unique_key is None
    # An empty key is a key.
    assert add(unique_key="").enqueue(a=1) == add(unique_key="").enqueue(a=2)


def test_a_key_belongs_to_its_kind(kinds):
    for kind in ("k" * 199 + "1", "k" * 199 + "2"):
        job(kind=kind)(lambda: None)

    made = [
        get_job(kind).using(unique_key="x").enqueue() for kind in kinds if kind.startswith("kk")
    ]

    assert len({each.unique_key for each in made}) == len({each.kind for each in made}) == 2


def test_a_key_of_one_s_own_replaces_that_of_the_rule_and_keeps_the_rest(declare):
    sync = declare(conflict="raise")
    first = sync.using(unique_key="1").enqueue(a=1)

    assert sync.using(unique_key="2").enqueue(a=1) != first
    with pytest.raises(DuplicateJob):
        sync.using(unique_key="1").enqueue(a=2)
    assert sync.using(unique=None).enqueue(a=1) != sync.using(unique=None).enqueue(a=1)


def test_plain_sql_uses_keys_too():
    sql = """insert into django_pgjobs_job (kind, unique_key) values ('noop', 'mine')
        on conflict (unique_key) where unique_key is not null do nothing"""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        cursor.execute(sql)
    [made] = Job.objects.all()
    claimed()
    assert row(made)["unique_key"] == "mine"
    end(made)
    assert row(made)["unique_key"] is None


# ---------------------------------------------------------------------------- how long a key is held


@pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
def test_until_finished_a_key_is_held_while_the_job_runs_and_no_longer(declare, status):
    sync = declare()
    first = sync.enqueue(a=1)
    if status != "cancelled":
        claimed()

    assert sync.enqueue(a=1) == first
    end(first, status)
    assert sync.enqueue(a=1) != first


def test_until_start_a_key_is_held_until_the_claim(declare):
    sync = declare(until="start")
    first = sync.enqueue(a=1)
    assert sync.enqueue(a=1) == first

    claimed()

    assert sync.enqueue(a=1) != first


@pytest.mark.parametrize("until", ["start", "finished"])
def test_a_retry_collides_with_no_newer_job(declare, until):
    sync = declare(until=until)
    first = sync.enqueue(a=1)
    claimed()
    if until == "finished":
        end(first, "failed")
    second = sync.enqueue(a=1)
    if until == "start":
        first.refresh_from_db()
        assert not any(settle(execute, 7, [Failed(claim_of(first), ERROR, 0.0)]))
    else:
        assert first.retry() == 1

    assert [row(each)["status"] for each in (first, second)] == ["pending", "pending"]
    assert row(first)["unique_key"] is None
    assert sync.enqueue(a=1) == second
    assert len(claimed()) == 2


@pytest.mark.parametrize("how", ["fails", "is lost", "is given back"])
@pytest.mark.parametrize("conflict", ["skip", "replace"])
def test_a_batch_comes_back_though_newer_jobs_have_its_keys(declare, conflict, how):
    sync = declare(until="start", conflict=conflict)
    make_worker(id=7)
    older = sync.enqueue_many({"a": n} for n in range(100))
    held = claimed()
    newer = sync.enqueue_many({"a": n} for n in range(100))
    assert not set(older) & set(newer)

    if how == "fails":
        settle(execute, 7, [Failed(claim, ERROR, 0.0) for claim in held])
    elif how == "is given back":
        assert release(execute, 7, held) == []
    else:
        Worker.objects.update(died_at=AGO)
        assert reaper.run(execute).jobs == 100

    assert Job.objects.pending().count() == 200
    assert not Job.objects.filter(pk__in=older).exclude(unique_key=None).exists()
    assert sync.enqueue_many({"a": n} for n in range(100)) == newer


def test_for_a_period_a_key_is_held_from_the_enqueue_whatever_becomes_of_the_job(declare):
    sync = declare(period=DAY)
    first = sync.enqueue(a=1)
    claimed()
    end(first)
    assert sync.enqueue(a=1) == first

    Job.objects.update(created_at=F("created_at") - DAY)

    second = sync.enqueue(a=1)
    assert second != first
    assert sync.enqueue(a=1) == second
    assert row(first)["unique_key"] is None


@pytest.mark.parametrize("conflict", ["skip", "replace"])
def test_a_batch_keeps_its_order_where_periods_are_over(declare, conflict):
    sync = declare("a", period=DAY, conflict=conflict)
    old = sync.enqueue_many({"a": n} for n in (1, 3))
    claimed()
    for held in Job.objects.filter(pk__in=old):
        end(held)
    Job.objects.update(created_at=F("created_at") - DAY)

    ids = sync.enqueue_many({"a": n} for n in range(5))

    assert ids == sorted(ids)
    assert not set(ids) & set(old)
    assert list(Job.objects.pending().order_by("run_at", "pk").values_list("pk", flat=True)) == ids


def test_after_a_period_a_job_that_is_not_finished_still_holds_its_key(declare):
    sync = declare(period=60)
    first = sync.enqueue(a=1)
    Job.objects.update(created_at=F("created_at") - DAY)
    assert sync.enqueue(a=1) == first
    claimed()

    assert sync.enqueue(a=1) == first


# ------------------------------------------------------------------------- an enqueue whose key is held


def test_skip_returns_the_job_that_is_there_and_changes_nothing(declare):
    sync = declare("a")
    first = sync.using(priority=3).enqueue(a=1)
    before = row(first)

    second = sync.using(delay=60).enqueue(a=1, b=2)

    assert (first.existed, second.existed) == (False, True)
    assert {f: getattr(second, f) for f in before} == before == row(first)
    assert {f: getattr(first, f) for f in before} == before


def test_raise_names_the_job_and_leaves_the_transaction_usable(declare):
    sync = declare(conflict="raise")
    with transaction.atomic():
        first = sync.enqueue(a=1)
        with pytest.raises(DuplicateJob, match=f"got that of job {first.id}") as raised:
            sync.enqueue(a=1)
        assert raised.value.job_id == first.id
        with pytest.raises(DuplicateJob):
            sync.enqueue_many([{"a": 2}, {"a": 1}])
        with pytest.raises(DuplicateJob, match="of this batch"):
            sync.enqueue_many([{"a": 3}, {"a": 3}])
        sync.enqueue(a=4)

    assert [each.payload["a"] for each in Job.objects.order_by("id")] == [1, 4]


def test_replace_moves_the_pending_job_on(declare, django_user_model):
    sync = declare("a", conflict="replace")
    first = sync.using(delay=60).enqueue(a=1, b=1)
    user = django_user_model.objects.create(username="u")

    again = sync.using(run_at=FUTURE, queue="mail", priority=5, subject=user).enqueue(a=1, b=2)

    assert again == first
    assert again.existed
    assert again.payload == {"a": 1, "b": 2}
    assert (again.run_at, again.queue, again.priority) == (FUTURE, "mail", 5)
    assert again.subject_id == str(user.pk)
    assert row(first) == {**row(first), **{f: getattr(again, f) for f in row(first)}}
    assert Job.objects.count() == 1


def test_replace_leaves_a_job_the_attempts_that_it_has_had(declare):
    sync = declare("a", conflict="replace", until="finished").using(max_attempts=3)
    first = sync.enqueue(a=1, b=1)
    claimed()
    first.refresh_from_db()
    settle(execute, 7, [Failed(claim_of(first), ERROR, 60.0)])
    first.refresh_from_db()

    again = sync.using(max_attempts=9, concurrency_key="k").enqueue(a=1, b=2)

    assert (again, again.payload["b"], again.concurrency_key) == (first, 2, "k")
    kept = ("id", "created_at", "attempts", "max_attempts", "errors", "last_error")
    assert {name: getattr(again, name) for name in kept} == {
        name: getattr(first, name) for name in kept
    }
    assert (again.attempts, again.max_attempts) == (1, 3)


def test_replace_makes_a_new_job_where_the_other_has_started(declare):
    sync = declare("a", conflict="replace")
    first = sync.enqueue(a=1, b=1)
    claimed()

    second = sync.enqueue(a=1, b=2)

    assert second != first
    assert row(first)["payload"] == {"a": 1, "b": 1}


def test_replace_until_finished_leaves_a_running_job_as_it_is_and_returns_it(declare):
    sync = declare("a", until="finished", conflict="replace")
    first = sync.enqueue(a=1, b=1)
    claimed()
    before = row(first)

    assert sync.enqueue(a=1, b=2) == first
    assert row(first) == before


def test_many_are_one_with_each_other_and_with_what_is_there(declare):
    sync = declare()
    there = sync.enqueue(a=2)
    payloads = [{"a": n} for n in (1, 2, 3, 1, 2)]

    ids = sync.enqueue_many(payloads)

    assert ids[1] == ids[4] == there.id
    assert ids[0] == ids[3] < ids[2]
    stored = Job.objects.in_bulk(ids)
    assert [stored[each].payload for each in ids] == payloads
    assert Job.objects.count() == 3


def test_many_that_replace_leave_the_last_payload(declare):
    sync = declare("a", conflict="replace")
    there = sync.enqueue(a=1, b=0)

    ids = sync.enqueue_many([{"a": a, "b": b} for a, b in ((1, 1), (2, 2), (1, 3), (2, 4))])

    assert ids == [there.id, ids[1]] * 2
    assert [each.payload["b"] for each in Job.objects.order_by("id")] == [3, 4]


def test_the_ids_of_a_batch_are_in_its_order(declare, monkeypatch):
    monkeypatch.setattr("django_pgjobs.enqueueing.CHUNK", 7)

    ids = declare().enqueue_many({"a": n} for n in range(30))

    assert ids == sorted(set(ids))
    assert list(Job.objects.order_by("id").values_list("payload__a", flat=True)) == list(range(30))


@pytest.mark.parametrize(("conflict", "woken"), [("skip", [1, 0, 0]), ("replace", [1, 1, 0])])
def test_workers_are_woken_for_what_is_new_or_replaced_and_due(
    declare, django_capture_on_commit_callbacks, conflict, woken
):
    sync = declare("a", conflict=conflict)

    for number, (expected, delay) in enumerate(zip(woken, (0, 0, 60), strict=True)):
        with django_capture_on_commit_callbacks() as callbacks:
            sync.using(queue=f"q{number}", delay=delay).enqueue(a=1)
        assert len(callbacks) == expected


# ------------------------------------------------------------------------------------------- refused

REFUSED = [
    ({"key": 1}, "key must be an argument's name"),
    ({"key": ["a", 1]}, "key must be"),
    ({"key": b"a"}, "key must be"),
    ({"key": "a b"}, "key must be"),
    ({"until": "end"}, "until must be 'start' or 'finished', got 'end'"),
    ({"until": "start", "period": 60}, "until and period must not be given together"),
    ({"conflict": "ignore"}, "conflict must be 'skip' or 'replace' or 'raise'"),
    ({"conflict": None}, "conflict must be"),
    *[
        ({"period": bad}, "period must be")
        for bad in (0, -1, "1", True, float("nan"), float("inf"), 10**12, datetime.timedelta(0))
    ],
]


@pytest.mark.parametrize(("rule", "said"), REFUSED)
def test_a_bad_rule_is_refused(rule, said):
    with pytest.raises(InvalidOption, match=f"^{said}"):
        Unique(**rule)


def test_what_is_no_rule_and_no_key_is_refused(django_assert_num_queries):
    with django_assert_num_queries(0):
        for bad in (True, "a", Unique):
            with pytest.raises(InvalidOption, match=r"^unique must be a Unique"):
                add(unique=bad)
        for bad in (b"x", 1, "a\x00", "\ud800"):
            with pytest.raises(InvalidOption, match=r"^unique_key must be text"):
                add(unique_key=bad)
        with pytest.raises(InvalidOption, match=r"must name arguments of \(a.*got 'c'"):
            add(unique=Unique("c"))
        keyed = add(unique=Unique(lambda payload: object()))
        with pytest.raises(InvalidPayload, match=r"^The unique key of 'add' must be storable"):
            keyed.enqueue(a=1)


def test_a_name_of_no_argument_is_refused_where_the_handler_is_declared(kinds):
    with pytest.raises(InvalidOption, match="got 'ordr_id'"):

        @job(unique=Unique("ordr_id"))
        def misspelt(order_id): ...

    assert "misspelt" not in kinds


def test_jobs_without_a_rule_are_enqueued_as_ever(django_assert_num_queries):
    with django_assert_num_queries(1):
        assert enqueue("add", a=1).unique_key is None
    with django_assert_num_queries(1):
        assert get_job("add").using(unique_key="k").enqueue(a=1).existed is False
    assert make(unique_key="k").existed is False


@pytest.mark.parametrize(
    ("rule", "refused"),
    [
        ({}, False),
        ({"period": 60}, False),
        ({"until": "start", "conflict": "raise"}, False),
        ({"until": "start"}, True),
        ({"until": "finished", "conflict": "replace"}, True),
    ],
    ids=str,
)
def test_what_would_wait_for_a_job_that_is_claimed_by_transaction_is_refused(
    declare, settings, django_assert_num_queries, rule, refused
):
    settings.PGJOBS = {"QUEUES": {"default": {"claim": "transaction"}}}
    sync = declare(**rule)

    if not refused:
        assert not sync.enqueue(a=1).existed
        return
    with django_assert_num_queries(0), pytest.raises(InvalidOption, match=r"^queue must be one"):
        sync.enqueue(a=1)


HIDE = """
create role pgjobs_test_blind;
grant all on django_pgjobs_job, django_pgjobs_job_id_seq to pgjobs_test_blind;
alter table django_pgjobs_job enable row level security;
create policy seen on django_pgjobs_job using (queue <> 'hidden') with check (true);
"""


def test_a_holder_that_may_not_be_seen_is_an_error_and_no_endless_search():
    keyed = get_job("noop").using(unique_key="k")
    keyed.using(queue="hidden").enqueue()
    with connection.cursor() as cursor:
        cursor.execute(HIDE)
        cursor.execute("set local role pgjobs_test_blind")

    with pytest.raises(PgJobsError, match="must be visible, got none in 100 tries"):
        keyed.enqueue()

    assert Job.objects.count() == 0
