"""Faults to plant into the product, to see that the tests catch them.

    PGJOBS_TEST_FAULT=no-fence make test ARGS=tests/concurrency        must fail

The variable reaches the test process through a fixture, and the processes that it starts through their
settings. Nothing is planted without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from django.apps import AppConfig

VARIABLE = "PGJOBS_TEST_FAULT"
FENCED = ("COMPLETE", "COMPLETE_WITH_RESULT", "RETRY", "FAIL", "CANCEL", "RELEASE")


def plant(name: str) -> None:
    """Break the product in the way of this name."""
    FAULTS[name]()


class Planted(AppConfig):
    """An app that plants the fault of the environment as it is loaded."""

    name = "tests.faults"

    def ready(self) -> None:
        plant(os.environ[VARIABLE])


def _statements() -> Any:
    from django_pgjobs import statements  # noqa: PLC0415 -- no models before the apps are loaded

    return statements


def _replace(name: str, old: str, new: str) -> None:
    statements = _statements()
    text = getattr(statements, name)
    if old not in text:
        msg = f"statements.{name} must hold {old!r} for this fault, got {text}. Adapt the fault."
        raise AssertionError(msg)
    setattr(statements, name, text.replace(old, new))


def _replace_in_claim(*replacements: tuple[str, str]) -> None:
    statements = _statements()
    claim: Callable[..., str] = statements.claim

    def broken(*arguments: str) -> str:
        text = claim(*arguments)
        for old, new in replacements:
            if old not in text:
                msg = f"The claim must hold {old!r} for this fault, got {text}. Adapt the fault."
                raise AssertionError(msg)
            text = text.replace(old, new)
        return text

    statements.claim = broken


def no_fence() -> None:
    """Settle and release whatever has the job's id."""
    for name in FENCED:
        text = getattr(_statements(), name)
        setattr(
            _statements(),
            name,
            text.replace("case when j.locked_by", "true or case when j.locked_by"),
        )
        if getattr(_statements(), name) == text:
            msg = f"statements.{name} must have a fence, got {text}. Adapt the fault."
            raise AssertionError(msg)


def fence_without_claims() -> None:
    """Let any claim of the same worker settle the job."""
    _replace("COMPLETE", "j.claims = %(claims)s", "%(claims)s > 0")


def claim_in_a_join() -> None:
    """Say `id in (locking select)`, which a join may run again and again."""
    statements = _statements()
    claim: Callable[..., str] = statements.claim

    def broken(*arguments: str) -> str:
        before, _, rest = claim(*arguments).partition(",\ndue as materialized (")
        select, found, update = rest.partition("\n)\nupdate")
        assert found, "adapt the fault to the claim"
        return f"{before}\nupdate" + update.replace(  # noqa: S608
            "= any(array(select id from due))", f"in ({select})"
        )

    statements.claim = broken


def claim_waits() -> None:
    """Wait for locked rows."""
    _replace_in_claim((" SKIP LOCKED", ""))


def claim_counts_no_attempt() -> None:
    """Count an attempt when it ends and not when it starts, so that a crash counts none."""
    _replace_in_claim(("attempts = attempts + 1, ", ""))


def claim_after_death() -> None:
    """Let a worker claim whose death is recorded."""
    _replace_in_claim((f" and {_statements()._LIVING}", ""))


def release_keeps_attempt() -> None:
    """Charge the attempt of a job that never started."""
    for name in ("RELEASE", "RELEASE_ORPHANS"):
        _replace(name, "attempts = attempts - 1, ", "")


def reap_by_id_only() -> None:
    """Write to what was read before, whatever it has become."""
    _replace("REAP", "for update of j skip locked", "")


def reap_by_age() -> None:
    """Take a job for lost when it runs long."""
    _replace("REAP", "(w.died_at is not null or (w.id is null and", "((true and")


def reap_registered_only() -> None:
    """Look for lost jobs among the workers that have a row."""
    _replace("REAP", "w.id is null", "false")


def dead_beats() -> None:
    """Renew the lease of a worker whose death is recorded."""
    _replace("HEARTBEAT", "and died_at is null", "")


def prune_waits() -> None:
    """Wait for locked rows, in no order."""
    for status, text in _statements().PRUNE.items():
        _statements().PRUNE[status] = text.replace(
            "order by finished_at limit %(limit)s for update skip locked",
            "order by random() limit %(limit)s",
        )


def verbs_wait() -> None:
    """Wait for locked rows in retry by hand, cancel and reschedule."""
    from django.db.models import QuerySet  # noqa: PLC0415 -- no models before the apps are loaded

    real = QuerySet.select_for_update

    def waiting(queryset: Any, **options: Any) -> Any:
        return real(queryset, **{**options, "skip_locked": False})

    from django_pgjobs.models import JobQuerySet  # noqa: PLC0415 -- likewise

    JobQuerySet.select_for_update = waiting


FAULTS: dict[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        no_fence,
        fence_without_claims,
        claim_in_a_join,
        claim_waits,
        claim_counts_no_attempt,
        claim_after_death,
        release_keeps_attempt,
        reap_by_id_only,
        reap_by_age,
        reap_registered_only,
        dead_beats,
        prune_waits,
        verbs_wait,
    )
}
