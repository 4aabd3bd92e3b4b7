"""Looks at the server: can it remove what is dead, and does it know the time."""

from __future__ import annotations

import datetime
import time

from django_pgjobs import checks, conf, symptoms
from django_pgjobs.doctor.findings import Patient, Said, Severity

_NOTED, _OLD, _VERY_OLD = 60.0, 300.0, 3_600.0  # seconds that a snapshot is held
_MANY = 1_000_000  # transactions, for a snapshot of which the time is not known
_DEAD_ROWS = 10_000  # so many do no harm
_LAGGING = 5  # times the number at which autovacuum begins
_LARGE_INDEX = 32 * 2**20  # bytes; a smaller one is read from memory anyway
_BLOATED = 4  # times the estimate
_CLOCKS = 2.0  # seconds


def snapshot(patient: Patient) -> Said:
    """Find who holds the oldest snapshot, if it is old."""
    [(sees_all, role)] = patient.ask(symptoms.SEES_ALL)
    if not sees_all:
        what = "How long the sessions of other roles are open is hidden: only their age in transactions is seen."
        yield Severity.INFO, what, f"GRANT pg_read_all_stats TO {role}."
    for what, name, detail, age, seconds in patient.ask(symptoms.SNAPSHOTS):
        severity = _severity_of(age, seconds)
        if severity is not Severity.OK:
            since = "" if seconds is None else f" for {datetime.timedelta(seconds=int(seconds))}"
            held = f"The oldest snapshot is held{since}, {age:,} transactions, by the {what} {name} ({detail})."
            told = " VACUUM removes no row that ended since, and claims walk past them."
            yield severity, held + told, _REMEDIES[what].format(name=name)


_REMEDIES = {
    "session": "End its transaction, or it with select pg_terminate_backend({name}); for the future set "
    "idle_in_transaction_session_timeout or transaction_timeout for its role.",
    "prepared transaction": "COMMIT PREPARED or ROLLBACK PREPARED '{name}'.",
    "replication slot": "Let its consumer catch up, or drop it: select pg_drop_replication_slot('{name}').",
    "standby": "End the long queries there, or switch its hot_standby_feedback off.",
}


def _severity_of(age: int, seconds: float | None) -> Severity:
    if seconds is None:
        return Severity.WARNING if age >= _MANY else Severity.OK
    steps = {_VERY_OLD: Severity.ERROR, _OLD: Severity.WARNING, _NOTED: Severity.INFO}
    return next((severity for least, severity in steps.items() if seconds >= least), Severity.OK)


def vacuum(patient: Patient) -> Said:
    """Find out whether dead rows are removed."""
    [(live, dead, is_on, begins, ago)] = patient.ask(symptoms.VACUUM)
    if not is_on:
        what = "Autovacuum is off, for the server or for the table of jobs."
        yield (
            Severity.ERROR,
            what,
            "Set autovacuum and track_counts on, and reset the table's autovacuum_enabled.",
        )
    if dead > max(_DEAD_ROWS, _LAGGING * begins):
        last = "never" if ago is None else f"{datetime.timedelta(seconds=int(ago))} ago"
        what = (
            f"Autovacuum lags: it should begin at {begins:,.0f} dead rows of jobs, there are {dead:,}. "
            f"The last one ended: {last}."
        )
        do = "Look for an old snapshot first. Then raise autovacuum_max_workers, or its cost limit."
        yield Severity.WARNING, what, do
    if dead > max(_DEAD_ROWS, live):
        what = f"The table of jobs has {dead:,} dead rows beside {live:,} living ones."
        yield (
            Severity.WARNING,
            what,
            "End what holds an old snapshot, then VACUUM django_pgjobs_job.",
        )


def bloat(patient: Patient) -> Said:
    """Find indexes that are much larger than what they hold, by an estimate."""
    for name, size, estimate in patient.ask(symptoms.INDEXES):
        if size > max(_LARGE_INDEX, _BLOATED * estimate):
            what = (
                f"The index {name} has {size / 2**20:,.0f} MB, where some {estimate / 2**20:,.0f} MB "
                "would do (an estimate)."
            )
            yield (
                Severity.WARNING,
                what,
                f"REINDEX INDEX CONCURRENTLY {name}, when nothing holds an old snapshot.",
            )


def pooler(patient: Patient) -> Said:
    """Find what a pooler in transaction mode breaks, and a way around it that leads elsewhere."""
    listening = conf.get().listen_database
    aliases = [alias for alias in (patient.alias, listening) if alias]
    for message in checks.check_poolers(databases=aliases) + checks.check_listening(
        databases=aliases
    ):
        yield Severity.WARNING, f"{message.msg} ({message.id})", message.hint or ""


def clock(patient: Patient) -> Said:
    """Compare the clocks of this machine and of the database."""
    before = time.time()
    [(there,)] = patient.ask(symptoms.CLOCK)
    after = time.time()
    # The server looked at some moment between the two.
    ahead = before - there if there < before else min(0.0, after - there)
    if abs(ahead) >= _CLOCKS:
        what = (
            f"The clock of this machine is {abs(ahead):,.1f} s {'ahead of' if ahead > 0 else 'behind'} "
            "that of the database, by which jobs are due."
        )
        do = "Let both machines keep time by NTP; and use delay= rather than run_at= for short times."
        yield Severity.WARNING, what, do
