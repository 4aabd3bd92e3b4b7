"""Everything that can happen to jobs, as rules of a state machine: each makes one step on both sides.

After every step the rows must be what the reference says.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from django_pgjobs import Discard, DuplicateJob, Retry, Snooze, Unique, claims, get_job
from tests.model import driver
from tests.model.reference import (
    HALF,
    HOUR,
    KEPT,
    MOMENT,
    NARROW,
    NARROW_SLOTS,
    SECOND,
    SLOTS,
    Key,
    Reference,
    Row,
    Served,
)

QUEUES = ("a", "b", NARROW)
SERVED = (Served(), Served(("a", NARROW)), Served(exclude=("b",)))
KINDS = {  # by which kind, and which key of limits if not its own
    "without limits": ("free", None),
    "one at a time by a key of its own": ("free", "shared"),
    "two at a time": ("pair", None),
    "sharing a key": ("pair", "shared"),
    "in order": ("line", None),
    "with a rate": ("slow", None),
}
RULES = {
    "start": {"until": "start"},
    "finished": {"until": "finished"},
    "period": {"period": KEPT / SECOND},
}
VERBS = ("retry", "retry", "cancel", "reschedule to the future", "reschedule to now", "delete")
WAYS = ("full", "full", "hot", "until dry", "completing")
RELEASED = "is released"
MEANWHILE = (
    *("an hour passes", "an hour passes", "three hours pass", "reap and prune"),
    *("a queue is paused", "a queue is resumed", "orphans are found"),
)
HOURS = {"an hour passes": 1, "three hours pass": 3}
CONFLICTS = ("skip", "replace", "raise")
ANSWERS = {
    "returns": None,
    "returns a value": [1, "two"],
    "fails": ValueError("no"),
    "asks for a retry": Retry(0),
    "snoozes": Snooze((HALF + HOUR) / SECOND),
    "gives up": Discard("no"),
}
# What one example is about: a few of each, so that they meet.
FOCUS = st.fixed_dictionaries(
    {
        "other": st.sampled_from([None, *KINDS]),
        "uniques": st.lists(
            st.tuples(st.sampled_from(list(RULES)), st.sampled_from(CONFLICTS)),
            min_size=1,
            max_size=2,
        ),
        "queues": st.lists(st.sampled_from(QUEUES), min_size=1, max_size=2, unique=True),
    }
)
either = st.integers(0, 1)
picks = st.lists(st.integers(0, 9), min_size=1, max_size=4)  # of what there is
late = st.booleans()
workers = st.sampled_from([0, 0, 1])
ARGUMENTS = {
    "enqueue": {
        "kind": either,
        "payloads": st.lists(
            st.tuples(st.sampled_from([0, 0, 0, 1, None]), either), min_size=1, max_size=3
        ),
        "unique": st.integers(0, 2),
        "options": st.fixed_dictionaries(
            {
                "queue": either,
                "priority": st.sampled_from([0, 0, 0, 7]),
                "delay": st.sampled_from([0, 0, 0, HALF]),
                "max_attempts": st.integers(1, 3),
            }
        ),
        "undone": st.sampled_from([False, False, False, False, True]),
    },
    "take": {
        "worker": workers,
        "limit": st.integers(1, 4),
        "way": st.sampled_from(WAYS),
        "picks": picks,
        "then": st.one_of(st.none(), st.sampled_from(list(ANSWERS))),
    },
    "settle": {
        "picks": picks,
        "late": late,
        "answer": st.sampled_from([*ANSWERS, RELEASED, "returns"]),
    },
    "die": {"worker": workers, "seen": st.booleans(), "started": picks, "reaped": st.booleans()},
    "by_hand": {"verb": st.sampled_from(VERBS), "picks": picks},
    "meanwhile": {
        "what": st.sampled_from(MEANWHILE),
        "queue": either,
        "worker": workers,
        "picks": picks,
    },
}
OFTEN = {"enqueue": 3, "take": 4, "settle": 3, "die": 1, "by_hand": 1, "meanwhile": 2}
# In one rule, since Hypothesis would leave out some of several, and FOCUS does that already.
STEPS = st.sampled_from([name for name, times in OFTEN.items() for _ in range(times)]).flatmap(
    lambda name: st.tuples(st.just(name), st.fixed_dictionaries(ARGUMENTS[name]))
)


def chosen(few: list[Any], number: int) -> Any:
    return few[number % len(few)]


class Lifecycle(RuleBasedStateMachine):
    """Everything that can happen to jobs, one thing at a time."""

    def __init__(self, about: str) -> None:
        super().__init__()
        self.about = about
        driver.begin()
        self.reference = Reference()
        self.dead: dict[int, tuple[driver.Worker, list[int] | None]] = {}  # what had started
        self.reaped: set[int] = set()
        self.claims: dict[claims.Token, tuple[driver.Worker, claims.Claim]] = {}  # all there were
        self.numbers = 0
        self.keys: dict[Key, str] = {}

    @initialize(focus=FOCUS, served=st.sampled_from(SERVED), count=st.integers(2, 6))
    def begin(self, focus, served, count):
        self.focus = focus
        self.kinds = [KINDS[name] for name in (self.about, focus["other"] or self.about)]
        self.workers = [driver.Worker(Served()), driver.Worker(served)]
        options = {"queue": 0, "priority": 0, "delay": 0, "max_attempts": 2}
        self.enqueue(0, [(0, n % 2) for n in range(count)], 2, options, undone=False)

    @rule(step=STEPS)
    def act(self, step):
        name, arguments = step
        getattr(self, name)(**arguments)

    # ----------------------------------------------------------------------------------- enqueue

    def enqueue(self, kind, payloads, unique, options, *, undone):
        options = dict(options)
        name, shared = self.kinds[kind]
        rule, conflict = chosen([*self.focus["uniques"], (None, None)], unique)
        options["queue"] = chosen(self.focus["queues"], options["queue"])
        given = [{"k": k, "u": u, "n": self.numbers + n} for n, (k, u) in enumerate(payloads)]
        self.numbers += len(given)
        if shared:
            options["concurrency_key"] = shared
        rows = [self._row(name, each, rule, options) for each in given]
        if rule:
            options["unique"] = Unique("u", conflict=conflict, **RULES[rule])
        changes = options | {"delay": options["delay"] / SECOND}
        ids = self._call(get_job(name).using(**changes), given, undone=undone)
        if not undone:
            self.reference.enqueue(rows, conflict, ids)

    def _row(self, kind, payload, rule, options):
        now, k = self.reference.now, payload["k"]
        row = Row(
            *(0, kind, payload["n"], options["queue"], options["priority"]),
            *(now + options["delay"], options["max_attempts"], now),
        )
        own = None if k is None or kind == "free" else f"{kind}:{k}"
        row.key = options.get("concurrency_key", own)
        row.unique = rule and Key(rule, kind, payload["u"])
        return row

    def _call(self, job_type, payloads, *, undone):
        ids = None
        with transaction.atomic():
            try:
                if len(payloads) == 1:
                    ids = [job_type.enqueue(**payloads[0]).id]
                else:
                    ids = job_type.enqueue_many(payloads)
            except DuplicateJob:
                pass  # and the transaction can be committed
            transaction.set_rollback(undone)
        return ids

    # ------------------------------------------------------------------------------------- claims

    def take(self, worker, limit, way, picks, then):
        """Claim, and look for what has limits. Then settle it, unless that comes later."""
        by, before = self.workers[worker], set(self.claims)
        if way == "hot" and by.claimer._marks:
            claimed = self._note(by, by.claim(limit, [], hot=True))
            assert len(claimed) <= limit
            self.reference.note_hot_claim(by.id, by.served, claimed)
        elif way == "completing" and self.claims:
            self._complete_and_claim(self._held(picks, late=False), limit)
        else:
            self._claim(by, limit, [])
        for looked in by.look_until_dry(limit) if way == "until dry" else [by.look(limit)]:
            self.reference.note_look(by.id, by.served, self._note(by, looked))
        left = self.reference.startable(by.served) if way == "until dry" else []
        assert not left, f"a free slot and a job that waits for one: {left}"
        if then:
            self._settle([self.claims[token] for token in self.claims.keys() - before], then)

    def _complete_and_claim(self, held, limit):
        """Do both in one statement, as a worker with short jobs does."""
        by, first = held[0]
        done = [each for worker, each in held if worker is by and each.claims == first.claims]
        self._claim(by, limit, done)

    def _claim(self, by, limit, done):
        due = self.reference.limited_is_due(by.served)
        for row in self.reference.chosen(claim.id for claim in done):
            if row.held_by(by.id, done[0].claims):
                self.reference.complete(row)
        claimed = self._note(by, by.claim(limit, done, hot=False))
        dead = by.id in self.dead_by_record
        assert claimed == ([] if dead else self.reference.claim(by.id, by.served, limit))
        assert (by.claimer.limited_due <= 0) == due

    def _note(self, by, claimed):
        self.claims |= {claim.token: (by, claim) for claim in claimed}
        return [claim.id for claim in claimed]

    def _held(self, picks, *, late):
        """Choose from the claims that hold a job, or if late from others, such as its earlier ones."""
        holding, others, earlier = [], [], []
        for by, claim in self.claims.values():
            row = self.reference.rows.get(claim.id)
            if row and row.held_by(by.id, claim.claims):
                holding.append((by, claim))
            else:
                others.append((by, claim))
                earlier += others[-1:] if row and row.status == "running" else []
        pool = (earlier or others if late else holding) or holding or others
        if not pool:
            return []
        return list({id(each): each for each in (chosen(pool, pick) for pick in picks)}.values())

    # ----------------------------------------------------------------------------------- outcomes

    def settle(self, picks, late, answer):
        """By whoever has or had the claim: a stale token changes nothing."""
        self._settle(self._held(picks, late=late), answer)

    def _settle(self, held, answer):
        for by in {id(worker): worker for worker, _ in held}.values():
            named = [claim for worker, claim in held if worker is by]
            for claim in named:
                self._note_outcome(by, claim, answer)
            if answer == RELEASED:
                assert claims.release(driver.execute, by.id, named) == []
            else:
                outcomes = [driver.run(claim, ANSWERS[answer]) for claim in named]
                driver.settle(driver.execute, by.id, outcomes)

    def _note_outcome(self, by, claim, answer):
        for row in self.reference.chosen([claim.id]):
            if not row.held_by(by.id, claim.claims):
                continue
            if answer.startswith("returns"):
                self.reference.complete(row, ANSWERS[answer])
            elif answer in (RELEASED, "snoozes"):
                self.reference.give_back(row, None if answer == RELEASED else HALF + HOUR)
            else:
                delay = {"fails": HALF, "asks for a retry": 0, "gives up": None}[answer]
                self.reference.fail(row, delay)

    # ------------------------------------------------------------------------------------- deaths

    def die(self, worker, seen, started, reaped):
        """And be replaced. What it has claimed stays in somebody's hands until it is reaped."""
        by = self._busy(worker)
        running = [row.id for row in self._running(by)]
        started = running[: started[0] % (len(running) + 1)] if seen else None
        by.die(started)
        self.dead[by.id] = (by, started)
        self.workers[self.workers.index(by)] = driver.Worker(by.served)
        if reaped:
            self._reap(prune=False)

    def _reap(self, *, prune):
        driver.reap(prune=prune)
        self.reaped = set(self.dead)
        retried = [
            row.id
            for by, started in self.dead.values()
            for row in self._running(by)
            if self.reference.lose(row, started=started is None or row.id in started)
        ]
        driver.wait_half_an_hour(retried)
        if prune:
            self.reference.prune()
        for by, _ in self.dead.values():
            assert by.claim(9, [], hot=False) == by.look(9) == [], "the dead claim nothing"

    @property
    def dead_by_record(self) -> set[int]:
        return self.reaped | {pk for pk, (_, started) in self.dead.items() if started is not None}

    def _busy(self, worker):
        """Return this worker, or the other one if only that is at work."""
        by = self.workers[worker]
        return by if self._running(by) else max(self.workers, key=lambda w: len(self._running(w)))

    def _running(self, by) -> list[Row]:
        return [
            row
            for row in self.reference.rows.values()
            if (row.status, row.holder) == ("running", by.id)
        ]

    # -------------------------------------------------------------------------- hands and the time

    def by_hand(self, verb, picks):
        there = list(self.reference.rows)
        ids = [chosen(there, pick) for pick in picks if there]
        rows = self.reference.chosen(ids)
        if verb.startswith("reschedule"):
            run_at = self.reference.now + (HALF if verb.endswith("future") else -HALF)
            expected = self.reference.reschedule(rows, run_at)
        else:
            expected = getattr(self.reference, verb)(rows)
        assert driver.by_hand(verb, ids) == expected

    def meanwhile(self, what, queue, worker, picks):
        queue = chosen(self.focus["queues"], queue)
        if what in HOURS:
            driver.let_pass(HOURS[what])
            self.reference.now += HOURS[what] * HOUR
        elif what == "a queue is paused":
            driver.pause(queue)
            self.reference.paused |= {queue}
        elif what == "a queue is resumed":
            driver.resume(queue)
            self.reference.paused -= {queue}
        elif what == "reap and prune":
            self._reap(prune=True)
        else:
            self._release_orphans(self._busy(worker), picks)

    def _release_orphans(self, by, picks):
        """Give back what a worker has and, but for a few, does not know of."""
        known = [claim for worker, claim in self._held(picks, late=True) if worker is by]
        tokens = {claim.token for claim in known}
        orphans = [row for row in self._running(by) if (row.id, row.claims) not in tokens]
        for row in orphans:
            self.reference.give_back(row)
        assert claims.release_orphans(driver.execute, by.id, known) == len(orphans)

    # ------------------------------------------------------------------------- after each of them

    @invariant()
    def the_rows_are_what_they_must_be(self):
        rows = driver.stored()
        expected = sorted(self.reference.rows.values(), key=lambda row: (row.run_at, row.id))
        now = self.reference.now
        self.reference.now += MOMENT
        assert [row.id for row in rows] == [row.id for row in expected]
        for got, row in zip(rows, expected, strict=True):
            assert (got.kind, got.number) == (row.kind, row.number)
            assert got[3:12] == (
                *(row.queue, row.priority, row.status, row.attempts, row.max_attempts),
                *(row.before, row.claims, row.holder, row.key),
            )
            assert got.unique_key == self._key(row.unique, got.unique_key)
            assert (got.result, got.errors) == (row.result, row.errors)
            assert (got.due, got.asked) == (row.run_at <= now, row.asked)
        uniques = Counter(row.unique_key for row in rows if row.unique_key)
        assert set(uniques.values()) <= {1}
        self._assert_limits(rows)

    def _key(self, key, stored):
        """Return what a key is stored as, which is the same each time."""
        if key is None:
            return None
        if key not in self.keys and stored and stored.startswith(f"{key.held}:{key.kind}:"):
            assert stored not in self.keys.values()
            self.keys[key] = stored
        return self.keys.get(key)

    def _assert_limits(self, rows):
        running = defaultdict(list)
        for row in rows:
            if row.status == "running" and row.concurrency_key:
                running[row.concurrency_key].append(row.kind)
        for key, kinds in running.items():
            least = min(len(kinds) if kind == "slow" else SLOTS.get(kind, 1) for kind in kinds)
            assert len(kinds) <= least, f"{kinds} run with the key {key}"
        assert sum((row.status, row.queue) == ("running", NARROW) for row in rows) <= NARROW_SLOTS
