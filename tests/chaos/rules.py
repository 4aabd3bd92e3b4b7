"""What must be true of keys, limits, rates, order and schedules in any history."""

from __future__ import annotations

import datetime
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from operator import itemgetter

from tests.app.mixed_rules import PACE, PERIOD, SLOTS
from tests.chaos.history import History, Life

_CLOCKS = 0.002  # seconds, as the numbers are rounded
Span = tuple[float, float, str]  # from, until, whose


def one_job_holds_a_key(history: History) -> Iterator[str]:
    """At most one row per key at any commit; for a period, one row in each period."""
    spans: dict[str, list[Span]] = defaultdict(list)
    for key, life in history.lives.items():
        for name, since, until in _held_keys(life):
            if name.startswith("period:"):
                since = life.row["created_at"].timestamp()  # noqa: PLW2901 -- another clock
                until = since + PERIOD  # noqa: PLW2901 -- likewise
            spans[name].append((since, until, key))
    for name, held in spans.items():
        for (_, until, one), (since, _, other) in itertools.pairwise(sorted(held)):
            if since < until:
                yield f"{one} and {other} have the key {name} at the same time"


def callers_were_told_the_truth(history: History) -> Iterator[str]:
    """Who was told of a job found it there, and one that stood for theirs did not start before."""
    lives = {life.row["id"]: life for life in history.lives.values()}
    for business, told in history.told.items():
        if business not in history.business:
            continue
        life = lives.get(told.job)
        if life is None:
            yield f"{business} was told of job {told.job} ({told.rule}), which is not there"
        elif told.rule.startswith("start-") and life.claims:
            early = history.business[business] - life.claims[0].at
            if early > _CLOCKS:
                yield f"job {told.job} stands for {business} and started {early:.3f} s before it"


def no_limit_is_exceeded(history: History) -> Iterator[str]:
    """Running rows per key, from the commit of each claim to that of what gave it up."""
    for name, most in most_at_a_time(history).items():
        if most > SLOTS[name.partition(":")[0]]:
            yield f"{most} jobs ran at the same time with the key {name}"


def most_at_a_time(history: History) -> dict[str, int]:
    """Return how many ran at most of each key that has a limit."""
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for life in history.lives.values():
        name = life.row["concurrency_key"] or ""
        if name.partition(":")[0] in SLOTS:
            changes[name] += [(claim.committed, 1) for claim in life.claims]
            changes[name] += [(claim.until, -1) for claim in life.claims]
    return {
        name: max(itertools.accumulate(map(itemgetter(1), sorted(found))), default=0)
        for name, found in changes.items()
    }


def no_rate_is_exceeded(history: History) -> Iterator[str]:
    """No window of the period sees more than n + burst starts. Each claim is one."""
    starts = starts_of("chaos_paced", history)
    most = PACE.n + (PACE.burst or 0)
    for first, last in zip(starts, starts[most:], strict=False):
        if last - first < float(PACE.per) - _CLOCKS:  # type: ignore[arg-type]
            yield f"{most + 1} starts within {last - first:.3f} s"


def starts_of(kind: str, history: History) -> list[float]:
    """Return the times of all claims of a kind, as the rows have them."""
    return sorted(
        change.began.timestamp()
        for life in history.lives.values()
        if life.row["kind"] == kind
        for change in life.changes
        if (change.old, change.new) == ("pending", "running")
    )


def jobs_of_a_lane_run_in_order(history: History) -> Iterator[str]:
    """Nothing is claimed while an earlier one of its key, committed before, is not final."""
    lanes: dict[str, list[tuple[str, Life]]] = defaultdict(list)
    for key, life in history.lives.items():
        if life.row["kind"] == "chaos_ordered":
            lanes[life.row["concurrency_key"]].append((key, life))
    for lane in lanes.values():
        lane.sort(key=lambda one: one[1].row["id"])
        for n, (key, life) in enumerate(lane):
            for change in life.changes:
                if (change.old, change.new) != ("pending", "running"):
                    continue
                for other, earlier in lane[:n]:
                    began, at = change.began.timestamp(), change.at.timestamp()
                    if earlier.inserted < began - _CLOCKS and not _is_final(earlier, at):
                        yield f"{key} was claimed before {other} was final"


def each_tick_has_one_job(history: History) -> Iterator[str]:
    """Exactly one job for each tick: all of them, or those that came later than the missed ones."""
    for schedule in history.schedules:
        name, every = schedule["name"], schedule["every"]
        found = ticks_of(name, history)
        for tick, count in Counter(found).items():
            if count > 1:
                yield f"{name} has {count} jobs for its tick at {tick}"
            if (tick - schedule["since"]) % every:
                yield f"{name} has a job for {tick}, which is no tick"
        if found and max(found) != schedule["last_at"]:
            yield f"{name} says that its last tick was {schedule['last_at']}, and not {max(found)}"
        if schedule["missed"] == "all" and found:
            last = (max(found) - schedule["since"]) // every
            if len(set(found)) != last:
                yield f"{name} has jobs for {len(set(found))} of its {last} ticks"


def ticks_of(name: str, history: History) -> list[datetime.datetime]:
    """Return the ticks that have a job."""
    metas = [life.row["meta"] for life in history.lives.values()]
    return [
        datetime.datetime.fromisoformat(meta["tick"])
        for meta in metas
        if meta.get("schedule") == name
    ]


def told(history: History) -> list[str]:
    """Return what happened of each feature, in lines."""
    kinds = Counter(life.row["kind"] for life in history.lives.values())
    rules = Counter(
        f"{told.rule} {'made' if told.new else 'found'}" for told in history.told.values()
    )
    replaced = sum(
        change.old == change.new == "pending"
        for life in history.lives.values()
        if life.row["kind"] == "chaos_once"
        for change in life.changes
    )
    starts = starts_of("chaos_paced", history)
    gaps = [b - a for a, b in itertools.pairwise(starts)]
    snoozes = sum(
        bool(change.given_back)
        for life in history.lives.values()
        if life.row["payload"].get("fate") == "snoozes"
        for change in life.changes
    )
    ticks = {s["name"]: len(ticks_of(s["name"], history)) for s in history.schedules}
    return [
        f"kinds: {_listed(kinds)}",
        f"unique: {_listed(rules)}; {replaced} replaced while they waited",
        f"limits: at most at a time {_listed(most_at_a_time(history))}",
        f"rate: {len(starts)} starts, nearest {min(gaps, default=math.inf):.3f} s",
        f"schedules: {_listed(ticks)} ticks",
        f"by hand: {_listed(history.verbs)}; attempts given back by those that snooze: {snoozes}",
    ]


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


def _held_keys(life: Life) -> Iterator[tuple[str, float, float]]:
    """Yield each unique key that the row had, and from which commit to which."""
    held, since = "", 0.0
    for change, committed in zip(life.changes, life.commits, strict=True):
        if held and change.unique_key != held:
            yield held, since, committed
            held = ""
        if change.unique_key and not held:
            held, since = change.unique_key, committed
    if held:
        yield held, since, math.inf


def _is_final(life: Life, at: float) -> bool:
    """Say whether a job had come to its end by then; one that did and was retried counts too."""
    ends = (change.at.timestamp() for change in life.changes if change.new in _FINAL)
    return min(ends, default=math.inf) <= at


_FINAL = ("done", "failed", "cancelled")

CHECKS: dict[str, Callable[[History], Iterator[str]]] = {
    "I11": one_job_holds_a_key,
    "I11 (told)": callers_were_told_the_truth,
    "I12": no_limit_is_exceeded,
    "I12 (rates)": no_rate_is_exceeded,
    "I13": each_tick_has_one_job,
    "I14 (keys)": jobs_of_a_lane_run_in_order,
}
