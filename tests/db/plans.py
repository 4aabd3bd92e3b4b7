"""A table with a history, and the plans that the server makes for the product's own statements."""

# ruff: noqa: S608 -- the SQL is put together from constants

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg import sql

from django_pgjobs import sessions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

JOB, WORKER, FIGURE = (f"django_pgjobs_{name}" for name in ("job", "worker", "figure"))
FINISHED, DELAYED, DUE, RUNNING, PEERS = 100_000, 100_000, 1_000, 100, 10_000

# 100,000 finished and 100,000 future jobs, half of these of a higher priority, beside a few due ones.
FILL = f"""
insert into {JOB} (kind, status, attempts, finished_at)
select 'noop', case when n % 50 = 0 then 'failed' when n % 51 = 0 then 'cancelled' else 'done' end,
    1, statement_timestamp() - make_interval(secs => n * 60)
from generate_series(1, {FINISHED}) n;

insert into {JOB} (kind, queue, priority, run_at)
select 'noop', case when n % 3 = 0 then 'mail' else 'default' end, n % 2 * 10,
    statement_timestamp() + make_interval(days => 1, secs => n)
from generate_series(1, {DELAYED}) n;

insert into {JOB} (kind, queue, unique_key)
select 'noop', case when n % 3 = 0 then 'mail' else 'default' end, 'key ' || n
from generate_series(1, {DUE}) n;

insert into {JOB} (kind, status, attempts, claims, locked_at, locked_by)
select 'noop', 'running', 1, 1, statement_timestamp(), n % 2 + 1 from generate_series(1, {RUNNING}) n;

insert into {WORKER} (id, host, pid, threads, heartbeat_at, died_at)
select n, 'h', n, 8, statement_timestamp() - interval '1 day',
    case when n between 2 and {PEERS} - 5 then statement_timestamp() end
from generate_series(1, {PEERS}) n;
"""

# What the statistics were taken of, if not of the table as it is.
FORMERLY = {
    "nothing": "",
    "a backlog of due jobs": f"insert into {JOB} (kind) select 'noop' from generate_series(1, 5000);",
    "a history of done jobs": f"""insert into {JOB} (kind, status, finished_at)
        select 'noop', 'done', statement_timestamp() from generate_series(1, 5000);""",
}


def refill(connection: psycopg.Connection[Any], statistics: str, fill: str = FILL) -> None:
    """Fill the tables; `statistics` is "true" or one of FORMERLY."""
    connection.execute(f"truncate {JOB}, {WORKER}, {FIGURE}")
    if statistics in FORMERLY:
        # Whole statements of constants, and by the simple protocol, as there are several in one.
        connection.execute(FORMERLY[statistics] or "select")
        connection.execute(f"analyze {JOB}, {WORKER}")
        connection.execute(f"delete from {JOB}")
    connection.execute(fill)
    if statistics == "true":
        connection.execute(f"analyze {JOB}, {WORKER}")


class Plan(NamedTuple):
    """One executed plan."""

    nodes: list[dict[str, Any]]

    @property
    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in self.nodes if "Index Name" in node}

    @property
    def seq_scans(self) -> set[str]:
        return {n["Relation Name"] for n in self.nodes if n["Node Type"] == "Seq Scan"}

    @property
    def buffers(self) -> int:
        return self.nodes[0]["Shared Hit Blocks"] + self.nodes[0]["Shared Read Blocks"]

    def buffers_of(self, subplan: str) -> int:
        """The pages that one part of the statement touched."""
        [node] = [node for node in self.nodes if node.get("Subplan Name") == subplan]
        return node["Shared Hit Blocks"] + node["Shared Read Blocks"]

    def read(self, table: str) -> int:
        """How many rows of the table were looked at, again and again included."""
        scans = [node for node in self.nodes if node.get("Relation Name") == table]
        seen = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
        return sum(
            round(sum(node.get(each, 0) for each in seen) * node["Actual Loops"]) for node in scans
        )

    @property
    def sorted_rows(self) -> int:
        """The most rows that one step sorted."""
        sorts = [node for node in self.nodes if node["Node Type"] in {"Sort", "Incremental Sort"}]
        return max((_fed(node) for node in sorts), default=0)

    @property
    def locked(self) -> int:
        """How many rows were locked before they were written."""
        return sum(round(node["Actual Rows"] * node["Actual Loops"]) for node in self._locks)

    @property
    def unsure(self) -> float:
        """By how many rows `locked` may be wrong: before 18 a server rounds the mean of a node's loops."""
        loops = (
            node["Actual Loops"] for node in self._locks if isinstance(node["Actual Rows"], int)
        )
        return sum(n / 2 for n in loops if n > 1)

    @property
    def _locks(self) -> list[dict[str, Any]]:
        return [node for node in self.nodes if node["Node Type"] == "LockRows"]

    @property
    def written(self) -> int:
        tables = [node for node in self.nodes if node["Node Type"] == "ModifyTable"]
        return sum(round(node["Actual Rows"] * node["Actual Loops"]) for node in tables)


def explain(
    connection: psycopg.Connection[Any],
    statement: str,
    params: dict[str, Any],
    cache_mode: str,
    *,
    planning: Sequence[str] | None = None,
) -> Plan:
    """Run the statement as a prepared one, roll it back, and return its plan.

    `cache_mode` is a value of plan_cache_mode, or "no prepare" for values written into the text.
    `planning` are settings of the planner, by default those of a worker's own session.
    """
    if planning is None:
        planning = sessions.IN_ORDER
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    prefix = "explain (analyze, buffers, timing off, format json) "
    with connection.transaction(force_rollback=True):
        connection.execute("; ".join(["select", *(f"set local {each}" for each in planning)]))
        if cache_mode == "no prepare":
            cursor = psycopg.ClientCursor(connection).execute(prefix + statement, params)
        else:
            numbers = {name: f"${n}" for n, name in enumerate(names, start=1)}
            numbered = re.sub(r"%\((\w+)\)s", lambda match: numbers[match[1]], statement)
            connection.execute(f"set local plan_cache_mode = {cache_mode}")
            connection.execute(f"prepare statement as {numbered}")
            values = sql.SQL(", ").join(sql.Literal(params[name]) for name in names)
            call = sql.SQL("({})").format(values) if names else sql.SQL("")
            cursor = connection.execute(sql.SQL(f"{prefix} execute statement") + call)
            connection.execute("deallocate statement")
        return parsed(cursor.fetchone()[0])


def parsed(answer: Any) -> Plan:
    """Return the plan that EXPLAIN answered as JSON."""
    return Plan(list(_nodes(json.loads(answer) if isinstance(answer, str) else answer)))


def _fed(node: dict[str, Any]) -> int:
    [source] = [each for each in node["Plans"] if each["Parent Relationship"] == "Outer"]
    return round(source["Actual Rows"] * source["Actual Loops"])


def _nodes(plan: Any) -> Iterator[dict[str, Any]]:
    root = plan[0]["Plan"]
    yield root
    yield from itertools.chain.from_iterable(map(_below, root.get("Plans", [])))


def _below(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _below(child)
