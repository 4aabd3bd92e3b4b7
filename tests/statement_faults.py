"""Faults to plant into the SQL: see `tests.faults`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FENCED = ("COMPLETE", "COMPLETE_WITH_RESULT", "RETRY", "FAIL", "CANCEL", "SNOOZE", "RELEASE")
CLAIMS = ("full_claim", "hot_claim", "claim_of_kinds")


def _statements() -> Any:
    from django_pgjobs import statements  # noqa: PLC0415 -- no models before the apps are loaded

    return statements


def _change(name: str, old: str, new: str) -> None:
    """Change one statement, wherever it stands and is part of a claim."""
    from django_pgjobs import free_lanes, inserts, statements, upkeep  # noqa: PLC0415 -- likewise

    modules = [one for one in (free_lanes, inserts, statements, upkeep) if name in vars(one)]
    [text] = {getattr(module, name) for module in modules}
    for module in modules:
        setattr(module, name, _changed(text, old, new))


def _change_claims(old: str, new: str, names: tuple[str, ...] = CLAIMS) -> None:
    """Change all statements that claim."""
    for name in names:
        _change_result(name, lambda text: _changed(text, old, new))


def _change_result(name: str, change: Callable[[str], str]) -> None:
    from django_pgjobs import free_lanes  # noqa: PLC0415 -- likewise

    real = getattr(free_lanes, name)
    setattr(free_lanes, name, lambda *arguments: change(real(*arguments)))


def _changed(text: str, old: str, new: str) -> str:
    if old not in text:
        msg = f"The statement must hold {old!r} for this fault, got {text}. Adapt the fault."
        raise AssertionError(msg)
    return text.replace(old, new)


def no_fence() -> None:
    """Settle and release whatever has the job's id."""
    for name in FENCED:
        _change(name, "case when j.locked_by", "true or case when j.locked_by")


def fence_without_claims() -> None:
    """Let any claim of the same worker settle the job."""
    _change("COMPLETE", "j.claims = %(claims)s", "%(claims)s > 0")


def claim_in_a_join() -> None:
    """Say `id in (locking select)`, which a join may run again and again."""

    def broken(text: str) -> str:
        before, _, rest = text.partition("due as materialized (")
        select, _, after = rest.partition("\n),\nsettled as (")
        update = _changed(after, "= any(array(select id from due))", f"in ({select})")
        return f"{before}settled as ({update}"

    for name in ("full_claim", "hot_claim"):
        _change_result(name, broken)


def claim_waits() -> None:
    """Wait for locked rows."""
    _change_claims(" SKIP LOCKED", "", ("full_claim", "hot_claim"))


def claim_counts_no_attempt() -> None:
    """Count an attempt when it ends and not when it starts, so that a crash counts none."""
    counts = _statements().MOVES["claim"].columns["attempts"]
    _change_claims(f"attempts = {counts}", "attempts = attempts")


def claim_after_death() -> None:
    """Let a worker claim whose death is recorded."""
    _change_claims(_statements().LIVING, "true")


def claim_before_its_time() -> None:
    """Claim what is not due yet."""
    _change_claims(f"run_at <= {_statements().NOW}", "run_at is not null", ("full_claim",))
    _change_result(
        "full_claim", lambda text: _changed(text, "<= (STATEMENT_TIMESTAMP())", "is not null")
    )


def pauses_are_ignored() -> None:
    """Claim from paused queues."""
    for name in ("ALL_QUEUES", "NAMED_QUEUES"):
        _change(name, "and q.paused_at is not null", "and false")


def pauses_wait_for_a_look() -> None:
    """Go on with a queue that is paused, where it was known before."""
    _change_claims("where paused_at is not null", "where false", ("hot_claim",))


def settle_waits() -> None:
    """Wait for locked rows when settling."""
    for name in ("COMPLETE", "COMPLETE_WITH_RESULT", "RETRY", "FAIL", "CANCEL", "SNOOZE"):
        _change(name, "for update skip locked", "for update")


def release_keeps_attempt() -> None:
    """Charge the attempt of a job that never started."""
    for name in ("RELEASE", "RELEASE_ORPHANS"):
        _change(name, "attempts = greatest(attempts - 1, 0)", "attempts = attempts")


def orphans_stay() -> None:
    """Keep what was claimed without an answer."""
    _change("RELEASE_ORPHANS", "not exists (", "false and not exists (")


def reap_by_id_only() -> None:
    """Write to what was read before, whatever it has become."""
    _change("REAP", "for update of j skip locked", "")


def reap_waits() -> None:
    """Wait for locked rows when reaping."""
    _change("REAP", "for update of j skip locked", "for update of j")


def reap_charges_all() -> None:
    """Charge an attempt to what waited in a worker that died."""
    _change("REAP", "w.started is null or", "true or w.started is null or")


def reap_charges_nothing() -> None:
    """Give back what had started, as if it had not."""
    _change("REAP", "w.started is null or w.started @> to_jsonb(j.id)", "false")


def reap_by_age() -> None:
    """Take a job for lost when it runs long."""
    _change("REAP", "(w.died_at is not null or (w.id is null and", "((true and")


def reap_registered_only() -> None:
    """Look for lost jobs among the workers that have a row."""
    _change("REAP", "w.id is null", "false")


def dead_beats() -> None:
    """Renew the lease of a worker whose death is recorded."""
    _change("HEARTBEAT", "and died_at is null", "")


def deaths_without_a_look() -> None:
    """Record a death without looking at the heartbeat again under the row's lock."""
    _change("RECORD_DEATHS", "for update skip locked", "")


def prune_waits() -> None:
    """Wait for locked rows, in no order."""
    from django_pgjobs import upkeep  # noqa: PLC0415 -- likewise

    for status, text in upkeep.PRUNE.items():
        upkeep.PRUNE[status] = text.replace(
            "order by finished_at limit %(limit)s for update skip locked",
            "order by random() limit %(limit)s",
        )


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        no_fence,
        fence_without_claims,
        claim_in_a_join,
        claim_waits,
        claim_counts_no_attempt,
        claim_after_death,
        claim_before_its_time,
        pauses_are_ignored,
        pauses_wait_for_a_look,
        settle_waits,
        release_keeps_attempt,
        orphans_stay,
        reap_by_id_only,
        reap_waits,
        reap_charges_all,
        reap_charges_nothing,
        reap_by_age,
        reap_registered_only,
        dead_beats,
        deaths_without_a_look,
        prune_waits,
    )
}
