"""Unique jobs of several sessions: what each is told, who waits for whom, and what is there in the end."""

from __future__ import annotations

import datetime
import itertools
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

import pytest
from django.db import DatabaseError, connections, transaction
from django.db.models import F

from django_pgjobs import DuplicateJob, Unique, get_job, job
from django_pgjobs.claims import Claimer
from django_pgjobs.lifecycle import FINAL
from django_pgjobs.models import Job
from django_pgjobs.outcomes import Done, settle
from django_pgjobs.sessions import Session
from tests import audit
from tests.concurrency.actors import ACTORS, EXPECTED, prepare
from tests.concurrency.hand_session import (
    READ_COMMITTED,
    REPEATABLE_READ,
    is_serialization_failure,
)
from tests.db.rows import claim_of
from tests.waiting import eventually

pytestmark = pytest.mark.newest

DAY = datetime.timedelta(days=1)
THREADS, ROUNDS, KEYS = 8, 15, 5


@pytest.fixture
def declare(kinds):
    def declare(*rule, **options):
        @job(kind="sync", unique=Unique(*rule, **options))
        def sync(a, b=None): ...

        return sync

    return declare


@pytest.fixture
def worker(transactional_db):
    session = Session("default")
    yield session.execute
    session.close()


def claim(execute):
    return [each.id for each in Claimer("default", 7).claim(execute, 10)]


class RolledBack(Exception):
    pass


class Producers:
    """Threads that enqueue the same keys, alone and in batches, and keep or undo what they did."""

    def __init__(self, sync) -> None:
        self.sync = sync
        self.told: list[
            tuple[dict[int, int], bool]
        ] = []  # the id of each key, and whether it was kept
        self.kept: dict[int, int] = {}  # by key: what the last one wrote that was kept
        self.errors: list[BaseException] = []
        self.refused = 0
        self._start = threading.Barrier(THREADS)
        self._number = itertools.count(1)

    def run(self) -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(self._produce, range(THREADS)))

    def _produce(self, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311
        self._start.wait()
        try:
            for _ in range(ROUNDS):
                self._transact(chance)
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the test looks
            self.errors.append(error)
        finally:
            connections.close_all()

    def _transact(self, chance: random.Random) -> None:
        told: dict[int, int] = {}
        ended = 0.0
        written: dict[int, int] = {}
        try:
            with transaction.atomic():
                keys = chance.sample(range(KEYS), chance.choice([1, 1, 3, KEYS]))
                payloads = [{"a": key, "b": next(self._number)} for key in keys]
                try:
                    if len(keys) == 1:
                        ids = [self.sync.enqueue(**payloads[0]).id]
                    else:
                        ids = self.sync.enqueue_many(payloads)
                except DuplicateJob as error:  # nothing of a batch stays
                    keys, payloads = keys[: len(keys) == 1], []
                    ids = [error.job_id for _ in keys]
                    self.refused += 1
                told = dict(zip(keys, ids, strict=True))
                written = {each["a"]: each["b"] for each in payloads}
                assert Job.objects.filter(pk__in=ids).count() == len(keys)  # it is usable still
                ended = time.monotonic()
                if chance.random() < 0.5:
                    raise RolledBack
                # While its locks are held: who replaces a key after this does so after the commit.
                self.kept.update(written)
        except RolledBack:
            self.told.append((told, False, ended))
        else:
            self.told.append((told, True, ended))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"until": "start"},
        {"period": 3_600},
        {"conflict": "replace"},
        {"conflict": "replace", "until": "finished"},
        {"conflict": "raise"},
        {"conflict": "raise", "until": "start"},
    ],
    ids=str,
)
def test_of_many_who_enqueue_the_same_keys_each_is_told_of_the_one_job_there_is(declare, rule):
    producers = Producers(declare("a", **rule))

    producers.run()

    assert producers.errors == []
    assert len(producers.told) == THREADS * ROUNDS
    there = {each.payload["a"]: each for each in Job.objects.all()}
    assert Job.objects.count() == len(there) == KEYS
    for told, kept, _ in producers.told:
        if kept:
            assert told == {key: there[key].id for key in told}
    assert (producers.refused > 0) == (rule.get("conflict") == "raise")
    if rule.get("conflict") == "replace":
        assert {key: each.payload["b"] for key, each in there.items()} == producers.kept


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("conflict", ["skip", "replace"])
def test_until_start_every_enqueue_that_is_committed_is_followed_by_a_start(declare, conflict):
    producers = Producers(declare("a", until="start", conflict=conflict))
    claimers = [Claimer("default", number) for number in (1, 2)]
    started: dict[int, float] = {}
    over = threading.Event()

    def work(claimer):
        session, done = Session("default"), []
        while not over.is_set() or done:
            done, _ = claimer.settle_and_claim(session.execute, done, 2)
            started.update(dict.fromkeys((each.id for each in done), time.monotonic()))
        session.close()

    with ThreadPoolExecutor(2) as pool:
        workers = [pool.submit(work, claimer) for claimer in claimers]
        try:
            producers.run()
            eventually(lambda: not Job.objects.pending().exists())
        finally:
            over.set()
        for each in workers:
            each.result()

    assert producers.errors == []
    assert len(started) == Job.objects.count() > KEYS
    for told, kept, ended in producers.told:
        for job_id in told.values() if kept else ():
            assert started[job_id] > ended


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_job_that_is_not_committed_is_waited_for_and_believed_only_then(declare, sessions, many):
    sync = declare(["a", "b"])
    one, other = sessions

    def enqueue(ending):
        if many:
            return sync.enqueue_many([{"a": 2, "b": ending}, {"a": 1, "b": ending}])[1]
        return sync.enqueue(a=1, b=ending).id

    for ending, end in (("commits", one.commit), ("rolls back", one.rollback), ("dies", one.die)):
        one.begin()
        other.begin()
        first = one.do(partial(enqueue, ending))
        step = other.start(lambda _, ending=ending: enqueue(ending))
        assert other.waits_for(one, step)
        end()
        second = step.result(timeout=10)
        found = Job.objects.filter(payload__a=1, payload__b=ending)
        assert other.do(found.count) == 1  # its transaction is usable
        other.commit()

        assert (second == first) == (ending == "commits")
        assert found.get().id == second


def test_under_repeatable_read_a_job_that_the_snapshot_lacks_is_postgresqls_own_refusal(sessions):
    one, other = sessions
    for number, conflict in enumerate(("skip", "replace", "raise")):
        sync = get_job("add").using(unique=Unique(conflict=conflict))
        one.begin(REPEATABLE_READ)
        other.begin(REPEATABLE_READ)
        one.do(partial(sync.enqueue, number))
        one.commit()

        with pytest.raises(DatabaseError) as raised:
            other.do(partial(sync.enqueue, number))

        assert is_serialization_failure(raised.value)
        other.rollback()


@pytest.mark.parametrize("conflict", ["skip", "replace"])
def test_until_start_a_job_that_stands_for_others_does_not_start_before_they_are_committed(
    declare, worker, conflict
):
    sync = declare("a", until="start", conflict=conflict)
    first = sync.enqueue(a=1)

    with transaction.atomic():
        assert sync.enqueue(a=1) == first
        assert claim(worker) == []

    assert claim(worker) == [first.id]


@pytest.mark.parametrize("conflict", ["skip", "replace"])
def test_until_start_a_claim_that_is_under_way_is_waited_for_and_another_job_made(
    declare, sessions, conflict
):
    sync = declare("a", until="start", conflict=conflict)
    first = sync.enqueue(a=1)
    one, other = sessions
    one.begin()
    other.begin()
    assert one.run(claim) == [first.id]

    step = other.start(lambda _: sync.enqueue(a=1).id)
    assert other.waits_for(one, step)
    one.commit()
    second = step.result(timeout=10)
    other.commit()

    assert second != first.id
    assert Job.objects.count() == 2


@pytest.mark.parametrize("conflict", ["skip", "replace"])
def test_a_running_job_is_neither_locked_nor_waited_for(declare, sessions, worker, conflict):
    sync = declare("a", until="finished", conflict=conflict)
    first = sync.enqueue(a=1)
    claim(worker)
    one, other = sessions
    one.begin()
    other.begin()

    assert one.do(lambda: sync.enqueue(a=1)) == first
    first.refresh_from_db()
    assert not any(settle(worker, 7, [Done(claim_of(first))]))

    second = other.do(lambda: sync.enqueue(a=1))
    assert second != first
    claimed = other.run(lambda execute: execute(LOCK, {"id": first.id}))
    assert claimed == [(first.id,)]
    one.commit()
    other.commit()


WRITERS = [(state, actor) for state in ("pending", "running", "lost") for actor in EXPECTED[state]]


@pytest.mark.parametrize("level", [READ_COMMITTED, REPEATABLE_READ])
def test_who_finds_a_job_waits_for_nobody_who_writes_it_nor_they_for_whom_it_was_found(
    sessions, level
):
    unique = get_job("noop").using(unique_key="k")
    for (state, actor), order in product(WRITERS, ("write, find", "find, write")):
        case = prepare(state)
        Job.objects.update(unique_key=unique._unique_key({}))
        audit.clear()
        for session in sessions:
            session.begin(level)
        writer, finder = sessions
        if order == "write, find":
            written = writer.run(partial(ACTORS[actor], case))
        found = finder.start(lambda _: unique.enqueue().id)
        assert not finder.waits_for(writer, found), (state, actor)
        if order == "find, write":
            written = writer.run(partial(ACTORS[actor], case))
        writer.commit()
        finder.commit()

        assert (written, found.result()) == (1, case.job), (state, actor, order)
        held = EXPECTED[state][actor] not in FINAL
        assert (unique.enqueue().id == case.job) == held, (state, actor, order)


def test_a_period_that_is_over_is_over_once(declare, sessions):
    sync = declare("a", period=60)
    first = sync.enqueue(a=1)
    first.cancel()
    Job.objects.update(created_at=F("created_at") - DAY)
    one, other = sessions
    one.begin()
    other.begin()

    second = one.do(lambda: sync.enqueue(a=1))
    step = other.start(lambda _: sync.enqueue(a=1))
    assert other.waits_for(one, step)
    one.commit()

    assert step.result(timeout=10) == second != first
    other.commit()


@pytest.mark.parametrize("conflict", ["skip", "replace"])
def test_a_batch_holds_no_key_behind_the_one_that_it_waits_for(declare, sessions, conflict):
    sync = declare("a", period=60, conflict=conflict)
    low, high = sorted([1, 2], key=lambda a: sync._unique_key({"a": a}))
    first = sync.enqueue(a=high)
    first.cancel()
    Job.objects.update(created_at=F("created_at") - DAY)
    one, other = sessions
    one.begin()
    other.begin()

    one.do(lambda: sync.enqueue(a=low))
    batch = other.start(lambda _: sync.enqueue_many([{"a": high}, {"a": low}]))
    assert other.waits_for(one, batch)
    mine = one.run(lambda _: sync.enqueue(a=high).id)
    one.commit()

    assert mine != first.id
    assert batch.result(timeout=10) == [mine, Job.objects.get(payload__a=low).id]
    other.commit()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("conflict", ["skip", "replace"])
def test_batches_whose_keys_were_held_for_a_period_never_wait_for_each_other(declare, conflict):
    sync = declare("a", period=0.001, conflict=conflict)

    def produce(seed):
        chance = random.Random(seed)  # noqa: S311
        try:
            for _ in range(50):
                ids = sync.enqueue_many({"a": chance.randrange(20)} for _ in range(15))
                Job.objects.filter(pk__in=chance.sample(ids, 8)).cancel()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(produce, range(4)))


LOCK = "select id from django_pgjobs_job where id = %(id)s for update"
