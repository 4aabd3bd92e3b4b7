"""One run: chaos, then peace, in which everything must drain; then the questions."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg.types.json import Jsonb

from tests.chaos import history, invariants, rules
from tests.chaos.history import History
from tests.chaos.monitor import MOST, Monitor
from tests.chaos.nemesis import Nemesis
from tests.chaos.world import PGJOBS, World

PEACE = 3 * PGJOBS["LEASE"]  # seconds after which nobody has cause to be out of order
STANDSTILL = 30.0  # seconds more in which at least one job ends, on a machine however busy
LATE = 0.5  # seconds beyond the poll in which a due job is taken up without a wake-up
CANARIES = 10


@dataclass
class Report:
    """What was seen."""

    lines: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


def run(folder: Path, seed: str, seconds: float) -> Report:
    """Break things for so long, heal them, and return what was seen."""
    report = Report()
    with World(folder, seed) as world:
        nemesis = Nemesis(world, seed)
        world.schedule()
        with Monitor(world, nemesis) as monitor:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                nemesis.attack()
            nemesis.heal()
            report.lines.append(f"attacks: {_told(nemesis.done)}")
            report.lines.append(
                f"answers cut off after a COMMIT: {sum(p.cuts for p in world.proxies)}"
            )
            world.stop_producing()
            world.unschedule()
            if _drain(world, report):
                _see_canaries(world, report)
            if (sessions := monitor.sessions()) > MOST:
                report.violations.append(f"I18: {sessions} sessions, where {MOST} are the most")
        report.violations += [f"I18: idle in a transaction: {idle}" for idle in monitor.idle]
        report.violations += [f"I12: {seen}" for seen in monitor.exceeded]
        report.lines.append(f"looks at the running jobs: {monitor.looks}")
        for name, status in world.stop().items():
            if status:
                report.violations.append(f"{name} was stopped in peace and exited with {status}")
        if world.ends:
            report.violations += [end for end in world.ends if end.endswith(" 0")]
            report.lines.append(f"ended by themselves: {_told(world.ends)}")
        with world.connect() as connection:
            seen = history.read(connection, world.processes.ledger)
    report.lines += _summary(seen) + rules.told(seen)
    report.violations += invariants.violations(seen)
    return report


def _drain(world: World, report: Report) -> bool:
    """Demand that what is left gets less and less, until it is nothing; say whether it was so."""
    began = lowest_at = time.monotonic()
    lowest = math.inf
    with world.connect() as connection:
        while (now := time.monotonic()) < lowest_at + PEACE + STANDSTILL:
            world.revive()
            if now > began + PEACE:  # no back-off to wait for; the audit sees what sets `status`
                connection.execute(
                    "update django_pgjobs_job set status = 'pending', run_at = statement_timestamp() "
                    "where status = 'pending' and run_at > statement_timestamp()"
                )
            row = connection.execute(
                "select count(*) from django_pgjobs_job where status in ('pending', 'running')"
            ).fetchone()
            left = row[0] if row else math.inf
            if left < lowest:
                lowest, lowest_at = left, now
            if not left:
                report.lines.append(f"drained in {now - began:.1f} s of peace")
                return True
            time.sleep(0.2)  # not to wait: the loop asks until its deadline
    report.violations.append(f"I15: {lowest} jobs are left in peace, and it does not get less")
    return False


def _see_canaries(world: World, report: Report) -> None:
    """Demand that jobs are taken up in time which nobody announces: plain SQL sends no wake-up."""
    waits = []
    with world.connect() as connection:
        for number in range(CANARIES):
            key = f"canary-{number}.0"
            ledger_of = world.processes.ledger
            connection.execute(
                "with business as (insert into auth_group (name) values (%s)) "
                "insert into django_pgjobs_job (kind, payload, concurrency_key) values (%s, "
                "jsonb_build_object('key', %s::text, 'seconds', 0, 'fate', 'works') || %s, %s)",
                [key.removesuffix(".0"), *_kind_of_canary(number, key)],
            )
            inserted = time.time()
            deadline = time.monotonic() + 30
            while not (starts := ledger_of.starts(key)) and time.monotonic() < deadline:
                time.sleep(0.05)  # not to wait: likewise
            waits.append(starts[0].at - inserted if starts else float("inf"))
    late = [wait for wait in waits if wait > PGJOBS["POLL"] + LATE]
    report.lines.append(f"taken up by the poll in at most {max(waits):.2f} s")
    if len(late) > CANARIES // 5:  # one may meet a machine that has something else to do
        report.violations.append(f"I16: taken up in {', '.join(f'{wait:.2f}' for wait in late)} s")


def _kind_of_canary(number: int, key: str) -> list[Any]:
    """Return kind, key, what else is in the payload, and the key of limits: every second one has one."""
    if number % 2:
        return ["chaos_limited", key, Jsonb({"lane": "canary"}), "chaos_limited:canary"]
    return ["chaos", key, Jsonb({}), None]


def _summary(seen: History) -> list[str]:
    fates = Counter(meant.fate for meant in seen.meant.values())
    statuses = Counter(life.row["status"] for life in seen.lives.values())
    claims = sum(len(life.claims) for life in seen.lives.values())
    lost = sum(
        error["error"] == "WorkerLost"
        for life in seen.lives.values()
        for error in life.row["errors"]
    )
    again = sum(len(life.bodies) > 1 for life in seen.lives.values())
    return [
        f"transactions: {_told(fates)}",
        f"jobs: {len(seen.lives)} ({_told(statuses)}); {claims} claims, {seen.bodies} starts",
        f"jobs that started more than once: {again}; attempts that lost their worker: {lost}",
        f"workers: {sum(map(len, seen.workers.values()))}",
    ]


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
