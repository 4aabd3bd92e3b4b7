"""The SQL functions of maintenance: reap and prune, for workers, `reapjobs` and plain SQL alike.

Each is made from the statements of `upkeep` and `gates`, with its arguments where those have parameters.
Workers and the command call the function, and run the statements where there is none: on the tables of the
release before, or on tables that were made without migrations.

Invariant: what a function does to a row, a statement says; it has the rights of who calls it, and finds
its tables whatever their search_path is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from django_pgjobs import gates, upkeep
from django_pgjobs.sessions import Execute

MIGRATION = "0002_functions"  # the latest that creates them

_BATCH = 1_000  # rows of one call, where it does not say


class Function(NamedTuple):
    """One of them, as it is created."""

    name: str
    arguments: tuple[tuple[str, str, str], ...]  # name, type, default
    columns: str
    body: str

    @property
    def signature(self) -> str:
        """What the server finds it by."""
        return f"{self.name}({', '.join(kind for _, kind, _ in self.arguments)})"

    def create(self, schema: str) -> str:
        """Return the statement that creates it, or makes it this one; `schema` is that of the tables."""
        arguments = ", ".join(
            f"{name} {kind} default {value}" for name, kind, value in self.arguments
        )
        return f"""create or replace function {schema}.{self.name}({arguments})
returns table ({self.columns}) language plpgsql volatile security invoker
set search_path = pg_catalog, {schema}, pg_temp set jit = off as $pgjobs${self.body}$pgjobs$"""

    def drop(self, schema: str) -> str:
        """Return the statement that drops it, if it is there."""
        return f"drop function if exists {schema}.{self.signature}"


# ---------------------------------------------------------------------------- how they are called

# Run by reaper in place of upkeep's statements, with their parameters and for the same rows.
RECORD_DEATHS = """
select worker, host, pid from django_pgjobs_record_deaths(make_interval(secs => %(lease)s))
"""
REAP = """
select job, queue, kind, status, attempts, started
from django_pgjobs_reap(make_interval(secs => %(lease)s), %(limit)s, figures => false)
"""
PRUNE = """
select what, pruned from django_pgjobs_prune(make_interval(secs => %(done)s::float8),
    make_interval(secs => %(failed)s::float8), make_interval(secs => %(cancelled)s::float8), %(limit)s)
"""

# Run by reaper, each time, for a migration may come and go. Raw: the catalogue has no model.
_IS_THERE = "select has_function_privilege(to_regprocedure(%(signature)s), 'execute')"


def are_there(execute: Execute) -> bool:
    """Whether the functions are there for this role; they come and go together."""
    [(there,)] = execute(_IS_THERE, {"signature": _prune().signature})
    return bool(there)


def functions() -> tuple[Function, ...]:
    """Return them as this code would create them, in an order in which that works."""
    return _record_deaths(), _reap(), _prune()


def digest() -> str:
    """Return what tells them from those of other releases: each change needs a migration."""
    texts = "".join(one.create("public") for one in functions())
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


# ------------------------------------------------------------------------------- what they consist of

_SECONDS = "extract(epoch from {})::float8"
_OLDER_THAN = ("older_than", "interval", "'60 seconds'")
_ROWS = ("batch", "integer", str(_BATCH))

_CHECK_AGE = """
    if older_than is null or older_than <= '0' then
        raise invalid_parameter_value using message = format('older_than must be the age of a heartbeat '
            'that means death, got %s. Give the LEASE of the workers, interval ''60 seconds'' say.',
            coalesce(older_than::text, 'null'));
    end if;"""
_CHECK_BATCH = """
    if batch is null or batch < 1 then
        raise invalid_parameter_value using message = format('batch must be a number of rows from 1, got '
            '%s. Leave it out, or give one.', coalesce(batch::text, 'null'));
    end if;"""

# Figures wait for a row that somebody holds, and nothing of a job may depend on them.
_FIGURES_REFUSED = """exception when others then
        raise warning 'The figures could not be {}: %', sqlerrm;"""


def _filled(statement: str, **arguments: str) -> str:
    """Return a statement with expressions where it has parameters."""
    given: Mapping[str, str] = arguments
    return (statement % given).strip()


def _record_deaths() -> Function:
    seconds = _SECONDS.format("older_than")
    statement = _filled(
        upkeep.RECORD_DEATHS,
        lease=seconds,
        death=f"('no heartbeat for more than ' || {seconds} || ' s')",
    )
    body = f"""
#variable_conflict use_column
begin{_CHECK_AGE}
    for worker, host, pid in {statement} loop
        return next;
    end loop;
end"""
    columns = "worker bigint, host text, pid integer"
    return Function("django_pgjobs_record_deaths", (_OLDER_THAN,), columns, body)


def _reap() -> Function:
    reap = _filled(upkeep.REAP, lease=_SECONDS.format("older_than"), limit="batch")
    add = _filled(
        upkeep.ADD_FIGURES,
        queues="queues",
        kinds="kinds",
        done="nothing",
        failed="losses",
        waits="nothing",
        runs="nothing",
    )
    # Each statement sees what was committed before it began: a death is recorded under the lock of the
    # worker's row, with its heartbeat looked at again, before the next one looks for jobs.
    body = f"""
#variable_conflict use_column
declare
    queues text[] := '{{}}';
    kinds text[] := '{{}}';
    losses bigint[];
    nothing bigint[];
begin{_CHECK_AGE}{_CHECK_BATCH}
    perform count(*) from django_pgjobs_record_deaths(older_than);
    for job, queue, kind, status, attempts, started in {reap} loop
        if started and figures then
            queues := queues || queue;
            kinds := kinds || kind;
        end if;
        return next;
    end loop;
    if cardinality(queues) > 0 then
        select array_agg(lost.queue), array_agg(lost.kind), array_agg(lost.jobs), array_agg(0)
        into queues, kinds, losses, nothing
        from (select one.queue, one.kind, count(*) as jobs from unnest(queues, kinds) one(queue, kind)
            group by one.queue, one.kind) lost;
        begin
            {add};
        {_FIGURES_REFUSED.format("written down")}
        end;
    end if;
end"""
    columns = "job bigint, queue text, kind text, status text, attempts integer, started boolean"
    arguments = (_OLDER_THAN, _ROWS, ("figures", "boolean", "true"))
    return Function("django_pgjobs_reap", arguments, columns, body)


_KEPT = {"done": "'7 days'", "failed": "'30 days'", "cancelled": "'30 days'"}


def _prune() -> Function:
    finished = "".join(_prune_status(status) for status in upkeep.PRUNE)
    workers = _filled(upkeep.PRUNE_WORKERS, keep=str(upkeep.WORKERS_KEPT))
    figures = _filled(upkeep.PRUNE_FIGURES, keep=str(upkeep.FIGURES_KEPT))
    body = f"""
#variable_conflict use_column
begin{_CHECK_BATCH}{finished}
    what := 'workers';
    {workers};
    get diagnostics pruned = row_count;
    return next;
    what := 'gates';
    {_filled(gates.PRUNE, limit="batch")};
    get diagnostics pruned = row_count;
    return next;
    what := 'figures';
    begin
        {figures};
        get diagnostics pruned = row_count;
    {_FIGURES_REFUSED.format("pruned")}
        pruned := null;
    end;
    return next;
end"""
    keeps = tuple((f"keep_{status}", "interval", _KEPT[status]) for status in upkeep.PRUNE)
    return Function("django_pgjobs_prune", (*keeps, _ROWS), "what text, pruned bigint", body)


def _prune_status(status: str) -> str:
    keep = f"keep_{status}"
    statement = _filled(upkeep.PRUNE[status], keep=_SECONDS.format(keep), limit="batch")
    return f"""
    what := '{status}';
    pruned := 0;
    if {keep} is not null then
        with gone as ({statement}) select count(*) from gone into pruned;
    end if;
    return next;"""
